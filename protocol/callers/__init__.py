"""Authentication of callers with bearer and delegation tokens. HTTP headers and parameters are in `webhdfs`."""
