//go:build tools

// Package tools names training-operator, so that go.mod pins it.
package tools

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
