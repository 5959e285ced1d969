"""any other server of OpenAI's API: see `driver`."""
