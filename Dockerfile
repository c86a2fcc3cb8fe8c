# Runs as any user, with a read-only root and no capabilities, and needs neither a volume nor a writable /tmp:
#   docker build --tag aes-exporter .
#   docker run --read-only --cap-drop=ALL --security-opt=no-new-privileges --publish=10739:10739 aes-exporter
# It measures the image's libcrypto. To measure the host's, mount it and name it: docs/deploy.md.
ARG PYTHON=3.13
ARG DEBIAN=trixie

FROM docker.io/library/python:${PYTHON}-${DEBIAN} AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY aes_exporter aes_exporter
# Bytecode is checked by hash, not by time: built twice, with SOURCE_DATE_EPOCH, it is the same image twice.
ARG SOURCE_DATE_EPOCH
RUN python3 -m venv --without-pip /opt/aes-exporter \
    && python3 -m pip --python /opt/aes-exporter/bin/python install --no-cache-dir --no-compile . \
    && ls /opt/aes-exporter/lib/python3*/site-packages/aes_exporter/worker/hotloop.so \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/aes-exporter/lib

FROM docker.io/library/python:${PYTHON}-slim-${DEBIAN}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="aes-exporter" \
      org.opencontainers.image.description="Prometheus exporter that keeps measuring how fast AES runs on a host" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/aes-exporter /opt/aes-exporter
# Python's images come without bytecode, which nobody can write later: every worker would compile what it imports.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -x 'site-packages|lib2to3|/tests?/' \
    "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
ENV AES_EXPORTER_WEB_LISTEN_ADDRESS=:10739
USER 65532:65532
EXPOSE 10739
# No curl needed. Without TLS only: with a web config, override it.
HEALTHCHECK --interval=60s --timeout=5s --start-period=10s CMD ["/opt/aes-exporter/bin/python", "-IS", "-c", "\
import os, http.client as h; \
c = h.HTTPConnection('localhost', os.environ['AES_EXPORTER_WEB_LISTEN_ADDRESS'].rpartition(':')[2], timeout=4); \
c.request('GET', '/-/healthy'); \
raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["/opt/aes-exporter/bin/aes-exporter"]
