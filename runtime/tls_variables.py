"""Environment variables that name TLS files, apart from all that knows TLS, which takes a while to import."""

CA_FILE_VARIABLE = "PEACEFS_CA_FILE"
CERTIFICATE_VARIABLE = "PEACEFS_TLS_CERTIFICATE"
KEY_VARIABLE = "PEACEFS_TLS_KEY"
CA_VARIABLE = "PEACEFS_TLS_CA"
#: The CA for Java: a PKCS12 truststore with the password below.
TRUSTSTORE_VARIABLE = "PEACEFS_TRUSTSTORE"
#: A truststore holds nothing that is secret; Java wants a password to know that it is whole.
TRUSTSTORE_PASSWORD = "peacefs"
#: The variables that name a service's own files: no process that it starts for others inherits them.
SERVICE_VARIABLES = (CERTIFICATE_VARIABLE, KEY_VARIABLE, CA_VARIABLE)
