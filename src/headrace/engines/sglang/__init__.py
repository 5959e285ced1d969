"""SGLang: see `driver`."""
