// The MinIO server of upstream, which also knows the policy variable ${s3:prefix}, as AWS does.
//
// MinIO compares a condition on s3:prefix with a request header named Prefix first, where there is one, and lists by the
// query parameter. A policy can ask that the two are the same only if it can name the parameter. `guard.go` and
// `documents.go` refuse what upstream lets in without a signature or a bound.
package main

import (
	"os"

	minio "github.com/minio/minio/cmd"
	"github.com/minio/pkg/v3/policy/condition"
)

func main() {
	os.Setenv("TZ", "UTC") // as upstream's own main does
	// The last one, so that nothing in a request's prefix is taken for a variable in its turn.
	condition.CommonKeys = append(condition.CommonKeys, condition.S3Prefix)
	minio.Main(os.Args)
}
