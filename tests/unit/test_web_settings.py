"""The web config file: what is understood, what is refused and with which line, and that no secret gets out."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from aes_exporter.web.document import WebConfigError
from aes_exporter.web.settings import RateLimit, WebConfig, load
from tests.certificates import ALICE, PAIR, USERS, write, write_authority, write_pair

AUTHORITY = trustme.CA()
SERVER = AUTHORITY.issue_cert("localhost")
OTHER = AUTHORITY.issue_cert("localhost")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a pair, another key, authorities, and files that are neither."""
    folder = tmp_path_factory.mktemp("web")
    write_pair(folder, AUTHORITY)
    write_pair(folder, AUTHORITY, stem="other")
    write_authority(folder / "clients.crt", AUTHORITY)
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    return folder


def config(folder: Path, text: str) -> WebConfig:
    return load(write(folder, text), Path.read_bytes)


def refusal(folder: Path, text: str) -> str:
    """Return the line with which a web config is refused, without the path of the file."""
    with pytest.raises(WebConfigError) as caught:
        config(folder, text)
    line = str(caught.value)
    assert line.startswith(str(folder / "web.yml:")), line
    assert line.isprintable()
    return line.removeprefix(f"{folder}/web.yml:").strip()


def context(folder: Path, extra: str) -> ssl.SSLContext:
    """Return the TLS context of a pair and further lines of its section."""
    tls = config(folder, PAIR + "".join(f"  {line}\n" for line in extra.splitlines())).tls
    assert tls is not None
    return tls.context


def indented(text: bytes) -> str:
    return "|\n" + "".join(f"    {line}\n" for line in text.decode().splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "---\n",
        "{}",
        "tls_server_config:\n",
        "tls_server_config: {}\n",
        'tls_server_config:\n  cert_file: ""\n  key_file:\n',
        "basic_auth_users:\nhttp_server_config:\nrate_limit:\n",
        "basic_auth_users: {}\nhttp_server_config:\n  http2: false\n  headers:\n",
        "rate_limit:\n  interval: 0\n  burst: 0\n",
    ],
)
def test_a_file_that_asks_for_nothing(folder: Path, text: str) -> None:
    """Empty files, sections and values are the same as none: plain HTTP for everybody."""
    assert config(folder, text) == WebConfig(tls=None, users={}, headers={}, rate_limit=None)


def test_all_at_once(folder: Path) -> None:
    """A file with everything that the format knows gives just that."""
    text = f"""
tls_server_config:
  cert_file: server.crt
  key_file: {folder}/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ./clients.crt
  client_allowed_sans: [one.test, 10.0.0.1]
  min_version: TLS13
  max_version: "TLS13"
  cipher_suites:
    - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
  prefer_server_cipher_suites: true
  curve_preferences: [CurveP384]
http_server_config:
  http2: true
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: 1
    X-Content-Type-Options: nosniff
    Content-Security-Policy: ""
basic_auth_users:
  alice: {ALICE}
  42: "{ALICE}"
  é: {ALICE}
rate_limit: {{interval: 1m1.5s, burst: 20}}
"""
    loaded = config(folder, text)

    assert loaded.tls is not None
    assert loaded.tls.verifies_clients
    assert loaded.tls.clients[2] == {"one.test", "10.0.0.1"}
    assert loaded.protections() == {"TLS", "client certificates", "passwords"}
    assert dict(loaded.users) == dict.fromkeys((b"alice", b"42", "é".encode()), ALICE.encode())
    assert loaded.headers == {
        "Strict-Transport-Security": "max-age=31536000",
        "X-Frame-Options": "deny",
        "X-XSS-Protection": "1",
        "X-Content-Type-Options": "nosniff",
    }
    assert loaded.rate_limit == RateLimit(interval_seconds=61.5, burst=20)


def test_certificates_in_the_file_itself(folder: Path) -> None:
    """Certificate, key and authority may stand in the web config instead of in files."""
    key, certificate = SERVER.private_key_pem.bytes(), SERVER.cert_chain_pems[0].bytes()
    authority = AUTHORITY.cert_pem.bytes()
    text = (
        f"tls_server_config:\n  cert: {indented(certificate)}  key: {indented(key)}"
        f"  client_ca: {indented(authority)}  client_auth_type: VerifyClientCertIfGiven\n"
    )
    loaded = config(folder, text)

    assert loaded.tls is not None
    assert loaded.tls.context.cert_store_stats()["x509_ca"] == 1
    assert loaded.tls.context.verify_mode is ssl.CERT_OPTIONAL
    assert loaded.protections() == {"TLS"}


@pytest.mark.parametrize(
    ("extra", "low", "high"),
    [
        ("", "TLSv1_2", "TLSv1_3"),
        ("min_version: TLS10", "TLSv1_2", "TLSv1_3"),
        ("min_version: TLS13", "TLSv1_3", "TLSv1_3"),
        ("max_version: TLS12", "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions(folder: Path, extra: str, low: str, high: str) -> None:
    """TLS 1.2 and 1.3 are spoken unless the file narrows that; older ones never."""
    found = context(folder, extra)

    assert (found.minimum_version.name, found.maximum_version.name) == (low, high)


def test_cipher_suites(folder: Path) -> None:
    """Of the suites for TLS 1.2 only those named are on; those for TLS 1.3 stay, as with the official exporters."""
    suites = "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_128_CBC_SHA]"
    ciphers = context(folder, f"cipher_suites: {suites}").get_ciphers()

    old = [cipher["name"] for cipher in ciphers if cipher["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES256-GCM-SHA384", "AES128-SHA"]


@pytest.mark.parametrize(
    ("extra", "mode"),
    [
        ("", ssl.CERT_NONE),
        ("client_auth_type: NoClientCert", ssl.CERT_NONE),
        ("client_auth_type: RequestClientCert\nclient_ca_file: clients.crt", ssl.CERT_NONE),
        ("client_auth_type: VerifyClientCertIfGiven\nclient_ca_file: clients.crt", ssl.CERT_OPTIONAL),
        ("client_auth_type: RequireAndVerifyClientCert\nclient_ca_file: clients.crt", ssl.CERT_REQUIRED),
        ("client_auth_type: RequireAndVerifyClientCert", ssl.CERT_REQUIRED),
    ],
)
def test_client_certificates(folder: Path, extra: str, mode: ssl.VerifyMode) -> None:
    """Each way to ask for client certificates is at least as strict as its name."""
    assert context(folder, extra).verify_mode is mode


def test_the_order_of_curves_weakens_nothing(folder: Path) -> None:
    """A list of all curves is only a preference, and taken."""
    context(folder, "curve_preferences: [X25519, CurveP256, CurveP384, CurveP521]")


PAIR_LINE = "does not make a pair with tls_server_config.cert_file"
REFUSALS = [
    ("[]", "1: expected keys and values"),
    ("text", "1: expected keys and values"),
    ("tls_server_config: yes", "1: tls_server_config: expected keys and values"),
    ("\ntls_config: {}", "2: unknown key 'tls_config'; did you mean tls_server_config?"),
    ("{[a]: b}", "1: expected text"),
    ("basic_auth_excluded_paths: [/]", "1: unknown key 'basic_auth_excluded_paths'"),
    ("rate_limit: {}\nrate_limit: {}", "2: the same key twice"),
    ("a: b: c", "1: not a YAML document: mapping values are not allowed here"),
    ("a: [", "1: not a YAML document: expected the node content, but found '<stream end>'"),
    ("a: *b", "1: not a YAML document"),
    ("---\n---\n", "2: not a YAML document"),
    ("\x00", "not a YAML document"),
    ("[" * 2000, "not a YAML document"),
    (f"{PAIR}  cert_fil: x", "4: tls_server_config: unknown key 'cert_fil'; did you mean cert_file?"),
    (
        f"{PAIR}  min_version: TLS9",
        "4: tls_server_config.min_version: expected one of TLS10, TLS11, TLS12, TLS13, got ",
    ),
    (f"{PAIR}  max_version: TLS11", "4: tls_server_config.max_version: expected one of TLS12, TLS13, got 'TLS11'"),
    (f"{PAIR}  min_version: TLS13\n  max_version: TLS12", "5: tls_server_config.max_version: lower than min_version"),
    (f"{PAIR}  cipher_suites: x", "4: tls_server_config.cipher_suites: expected a list"),
    (f"{PAIR}  cipher_suites: [TLS_NULL]", "4: tls_server_config.cipher_suites: expected one of TLS_ECDHE_"),
    (
        f"{PAIR}  cipher_suites: [TLS_AES_128_GCM_SHA256]",
        "4: tls_server_config.cipher_suites: none for TLS 1.2; to allow TLS 1.3 only, set min_version: TLS13",
    ),
    *(
        (
            f"{PAIR}  curve_preferences: [{curves}]",
            "4: tls_server_config.curve_preferences: cannot be honoured by Python, but for one of CurveP256, ",
        )
        for curves in ("X25519", "CurveP256, CurveP384")
    ),
    (f"{PAIR}  curve_preferences:\n  - CurveP1", "5: tls_server_config.curve_preferences: expected one of CurveP256, "),
    (
        f"{PAIR}  prefer_server_cipher_suites: 2",
        "4: tls_server_config.prefer_server_cipher_suites: expected true or fa",
    ),
    *(
        (
            f"{PAIR}  client_auth_type: {name}",
            f"4: tls_server_config.client_auth_type: {name} cannot be honoured by Python; RequireAndVerify",
        )
        for name in ("RequireAnyClientCert", "RequireClientCert")
    ),
    (f"{PAIR}  client_auth_type: x", "4: tls_server_config.client_auth_type: expected one of NoClientCert, Request"),
    *(
        (
            f"{PAIR}  client_ca_file: clients.crt\n{more}",
            "4: tls_server_config.client_ca_file: has no effect without a client_auth_type, such as Require",
        )
        for more in ("", "  client_auth_type: NoClientCert")
    ),
    (
        f"{PAIR}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: empty",
        "5: tls_server_config.client_ca_file: no certificate in it, or a broken one",
    ),
    (
        f"{PAIR}  client_auth_type: RequireAndVerifyClientCert\n  client_ca: nothing",
        "5: tls_server_config.client_ca: no certificate in it, or a broken one",
    ),
    (
        f"{PAIR}  client_auth_type: VerifyClientCertIfGiven\n  client_allowed_sans: [x]",
        "5: tls_server_config.client_allowed_sans: needs client_auth_type: RequireAndVerifyClientCert",
    ),
    ("tls_server_config:\n  key_file: server.key", "2: tls_server_config: missing one of cert or cert_file"),
    ("tls_server_config:\n  cert_file: server.crt", "2: tls_server_config: missing one of key or key_file"),
    ("tls_server_config:\n  min_version: TLS13", "2: tls_server_config: missing one of cert or cert_file"),
    (PAIR.replace("server.crt", "x.crt"), "2: tls_server_config.cert_file: No such file or directory"),
    (PAIR.replace("server.key", "folder"), "3: tls_server_config.key_file: Is a directory"),
    (PAIR.replace("server.key", "other.key"), f"3: tls_server_config.key_file: {PAIR_LINE}: key_values_mismatch"),
    (PAIR.replace("server.key", "empty"), f"3: tls_server_config.key_file: {PAIR_LINE}: "),
    (PAIR.replace("server.crt", "empty"), f"3: tls_server_config.key_file: {PAIR_LINE}: "),
    ("basic_auth_users: [alice]", "1: basic_auth_users: expected keys and values"),
    ("basic_auth_users: alice", "1: basic_auth_users: expected keys and values"),
    *(
        (
            f"basic_auth_users:\n  bob: {ALICE}\n  alice: {hashed}",
            "3: basic_auth_users: the password of this user is not a bcrypt hash, such as htpasswd -nBC 10 makes",
        )
        for hashed in ("", "wonderland", ALICE[:-1], f"{ALICE}x", ALICE.replace("$04", "$03"), ALICE.replace("2y", "5"))
    ),
    (f"{USERS}  alice: {ALICE}", "3: basic_auth_users: the same key twice"),
    ("basic_auth_users:\n  alice: [x]", "2: basic_auth_users: expected text"),
    ("http_server_config: {http3: true}", "1: http_server_config: unknown key 'http3'; did you mean http2?"),
    ("http_server_config: {http2: maybe}", "1: http_server_config.http2: expected true or false"),
    ("http_server_config: {headers: [x]}", "1: http_server_config.headers: expected keys and values"),
    ("http_server_config: {headers: {Server: x}}", "1: http_server_config.headers: unknown key 'Server'"),
    (
        "http_server_config:\n  headers:\n    X-Frame-Options: never",
        "3: http_server_config.headers.X-Frame-Options: expected one of deny, sameorigin, got 'never'",
    ),
    *(
        (
            f"http_server_config:\n  headers:\n    X-XSS-Protection: {value}",
            "3: http_server_config.headers.X-XSS-Protection: expected printable ASCII on one line",
        )
        for value in (r'"a\r\nb: c"', "é")
    ),
    ("rate_limit: {interval: 1, burst: 1}", "1: rate_limit.interval: expected a duration such as 1s or 100ms"),
    ("rate_limit: {interval: 1s, burst: -1}", "1: rate_limit.burst: expected a whole number"),
    ("rate_limit: {interval: 1s}", "1: rate_limit: a burst of 0 would refuse every request"),
]


@pytest.mark.parametrize(("text", "line"), REFUSALS)
def test_refusal(folder: Path, text: str, line: str) -> None:
    """What cannot be honoured is refused by line and key; the rest of the message may name all choices."""
    assert refusal(folder, text).startswith(line)


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is one line, too."""
    with pytest.raises(WebConfigError) as caught:
        load(tmp_path / "web.yml", Path.read_bytes)
    assert str(caught.value) == f"{tmp_path}/web.yml: No such file or directory"


SECRET = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


@pytest.mark.parametrize(
    "text",
    [
        f"basic_auth_users:\n  alice: {SECRET}\n",
        f"basic_auth_users:\n  {SECRET}: alice\n",
        f"basic_auth_users:\n  alice: *{SECRET}\n",
        f"basic_auth_users:\n  alice: !{SECRET} x\n",
        f"basic_auth_users:\n  alice: '{SECRET}\n",
        f"basic_auth_users:\n  alice: {{{SECRET}\n",
        f"basic_auth_users:\n  alice: [{SECRET}]\n",
        f"basic_auth_users: {SECRET}\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key: {SECRET}\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key: |\n{SECRET}\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key: [{SECRET}\n",
        f"tls_server_config:\n  cert: {SECRET}\n  key_file: server.key\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key_file: {SECRET}\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key_file: {SECRET * 1000}\n",
        f"tls_server_config:\n  cert_file: server.crt\n  key_file: |\n    BEGIN\n    {SECRET}\n",
    ],
)
def test_no_secret_in_an_error(folder: Path, text: str) -> None:
    """Whatever is wrong with a file, the error repeats neither a key nor a hash, and nothing hangs on to it."""
    with pytest.raises(WebConfigError) as caught:
        config(folder, text)

    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_no_secret_in_a_repr(folder: Path) -> None:
    """A config that ends up in a log or a traceback shows no hash and no certificate."""
    assert ALICE not in repr(config(folder, PAIR + USERS))
    assert "alice" not in repr(config(folder, PAIR + USERS))


def test_an_encrypted_key_asks_nobody(folder: Path) -> None:
    """A key with a password is refused; nothing waits for somebody to type it."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    (folder / "encrypted.key").write_bytes(encrypted)
    (folder / "encrypted.crt").write_bytes(SERVER.cert_chain_pems[0].bytes())
    text = "tls_server_config:\n  cert_file: encrypted.crt\n  key_file: encrypted.key\n"

    assert refusal(folder, text).startswith("3: tls_server_config.key_file: does not make a pair with ")


@given(text=st.text(st.sampled_from("ab:-[]{}#&*!|>'\"%@`\n\t ,?\x00é"), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken_or_refused_in_one_line(folder: Path, text: str) -> None:
    """Whatever stands in the file, the outcome is a config or one printable line."""
    line = ""
    try:
        config(folder, text)
    except WebConfigError as error:
        line = str(error)

    assert line.isprintable()
