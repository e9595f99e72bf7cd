"""Who asks: bearer and delegation tokens, and the caller that one of them names. HTTP is in `webhdfs`."""
