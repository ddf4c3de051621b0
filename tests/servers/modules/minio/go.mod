module ais_tar2tf/tests/servers/minio

go 1.26

require github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c
