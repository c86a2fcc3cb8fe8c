"""Who may ask, and by which protection: the web config file that the official exporters share.

`document` reads YAML, `settings` and `tls` give it its meaning, `current` keeps it up to date, `guard` stands before
the application and `passwords` behind the guard. None of them knows what is being protected.
"""
