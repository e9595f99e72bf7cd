"""Environment variables that name TLS files. Separate from `tls`, which is slow to import."""

CA_FILE_VARIABLE = "PEACEFS_CA_FILE"
CERTIFICATE_VARIABLE = "PEACEFS_TLS_CERTIFICATE"
KEY_VARIABLE = "PEACEFS_TLS_KEY"
CA_VARIABLE = "PEACEFS_TLS_CA"
#: The CA for Java: a PKCS12 truststore with the password below.
TRUSTSTORE_VARIABLE = "PEACEFS_TRUSTSTORE"
#: A truststore contains no secrets, but Java needs a password to check its integrity.
TRUSTSTORE_PASSWORD = "peacefs"
#: Variables that name a service's own files. Processes that it starts for users must not inherit them.
SERVICE_VARIABLES = (CERTIFICATE_VARIABLE, KEY_VARIABLE, CA_VARIABLE)
