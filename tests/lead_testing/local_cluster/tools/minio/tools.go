//go:build tools

// Package tools names the MinIO server, so that go.mod pins it.
package tools

import _ "github.com/minio/minio"
