"""HTTP for all stores: connections, redirects, TLS, proxies, tokens, and the control plane's sessions."""
