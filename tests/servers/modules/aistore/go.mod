module ais_tar2tf/tests/servers/aistore

go 1.26

require github.com/NVIDIA/aistore v1.5.0
