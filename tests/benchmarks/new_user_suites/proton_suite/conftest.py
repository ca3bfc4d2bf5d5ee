"""No test here trusts anybody by TLS, so no client has to read the authorities of the system."""

import os

os.environ["SSL_CERT_FILE"] = os.devnull
