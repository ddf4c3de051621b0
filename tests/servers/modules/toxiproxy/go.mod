module ais_tar2tf/tests/servers/toxiproxy

go 1.26

require github.com/Shopify/toxiproxy/v2 v2.5.0
