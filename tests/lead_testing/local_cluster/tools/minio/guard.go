package main

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"os"
	"strings"
	_ "unsafe" // for go:linkname

	_ "github.com/minio/minio/cmd"
	"github.com/minio/mux"
)

// What upstream lets every request pass through first. It can be extended at no other place than this.
//
//go:linkname globalMiddlewares github.com/minio/minio/cmd.globalMiddlewares
var globalMiddlewares []mux.MiddlewareFunc

const (
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	signedHeader    = "AWS4-HMAC-SHA256 "
	snowball        = "X-Amz-Meta-Snowball-Auto-Extract"
	unzip           = "X-Minio-Extract"
	formUpload      = "multipart/form-data"
)

// Parameters by which a request says in its address who it is.
var credentialParameters = []string{"x-amz-credential", "x-amz-signature", "x-amz-algorithm", "awsaccesskeyid"}

// Headers and parameters by which one server hands objects to another: time, size, checksum and encryption as they were.
var replicationNames = []string{"x-minio-source-", "x-minio-replication-", "x-minio-internal-"}

// refusal returns an S3 error code and why a request is not served; an empty code where it is.
//
// Upstream checks no signature where the payload is unsigned with a trailer and the credential stands in the address
// (object-handlers.go, object-multipart-handlers.go: authTypeStreamingUnsignedTrailer), nor where such a payload is an
// archive to unpack (PutObjectExtractHandler). It takes the credential from the address even where the signature is in
// a header. S3 Select unpacks what it reads into memory without a bound.
//
// Whoever may write an object may also write it as a replica: dated so that later writes stay hidden behind it, or as
// encrypted when it is not, and every listing that meets it fails. With a version's ID in the address it replaces that
// version, and nothing is left to restore. Each key may ask the admin API for its own policy: that of pods names all
// namespaces. Nothing of ours needs what is refused.
func refusal(request *http.Request) (code, why string) {
	signatures := request.Header.Values("Authorization")
	query, broken := url.ParseQuery(request.URL.RawQuery)
	switch {
	case broken != nil:
		return "InvalidArgument", "the parameters of the request cannot be read"
	case len(signatures) > 1, len(signatures) == 1 && has(query, credentialParameters...):
		return "InvalidArgument", "a request says once who it is: by one header or by its parameters"
	case strings.EqualFold(request.Header.Get("X-Amz-Content-Sha256"), unsignedTrailer) &&
		!(len(signatures) == 1 && strings.HasPrefix(signatures[0], signedHeader)):
		return "AccessDenied", "an unsigned payload with a trailer needs a signature in the Authorization header"
	case len(request.Header.Values("X-Amz-Content-Sha256")) > 1:
		return "InvalidArgument", "X-Amz-Content-Sha256 is given more than once"
	case request.Header.Values(snowball) != nil:
		return "NotImplemented", "archives are not unpacked here"
	case request.Header.Values(unzip) != nil:
		return "NotImplemented", "objects are not taken out of archives here"
	case has(query, "select", "select-type"):
		return "NotImplemented", "S3 Select is not offered here"
	case request.Method == http.MethodPost && strings.Contains(strings.ToLower(request.Header.Get("Content-Type")), formUpload):
		return "NotImplemented", "uploads by forms are not offered here"
	case anyBegins(request.Header, replicationNames), anyBegins(query, replicationNames):
		return "NotImplemented", "this server takes no replicas of objects"
	case (request.Method == http.MethodPut || request.Method == http.MethodPost) && has(query, "versionId"):
		return "NotImplemented", "the server alone names the version of what is written"
	case isAdministration(request.URL.Path) && !isRoots(signatures):
		return "AccessDenied", "the administration is for the root key alone"
	case request.ContentLength > limitOf(request, query):
		return "EntityTooLarge", "the document is larger than any that is needed"
	}
	return "", ""
}

func isAdministration(path string) bool {
	return strings.HasPrefix(path, "/minio/admin/") || strings.HasPrefix(path, "/minio/kms/")
}

// isRoots tells whether a signature is in the name of the server's own key; upstream checks it.
func isRoots(signatures []string) bool {
	root := os.Getenv("MINIO_ROOT_USER")
	if root == "" {
		return true // configured in another way than by the chart
	}
	claim := "AWS4-HMAC-SHA256Credential=" + root + "/"
	return len(signatures) == 1 && strings.HasPrefix(strings.ReplaceAll(signatures[0], " ", ""), claim)
}

func anyBegins(names map[string][]string, with []string) bool {
	for name := range names {
		for _, begin := range with {
			if len(name) >= len(begin) && strings.EqualFold(name[:len(begin)], begin) {
				return true
			}
		}
	}
	return false
}

func has(query url.Values, names ...string) bool {
	for key := range query {
		for _, name := range names {
			if strings.EqualFold(key, name) {
				return true
			}
		}
	}
	return false
}

type s3Error struct {
	XMLName  xml.Name `xml:"Error"`
	Code     string
	Message  string
	Resource string
}

func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		code, why := refusal(request)
		if code == "" {
			request.Body = bounded(request)
			next.ServeHTTP(response, request)
			return
		}
		status := map[string]int{"InvalidArgument": 400, "EntityTooLarge": 400, "AccessDenied": 403, "NotImplemented": 501}[code]
		response.Header().Set("Content-Type", "application/xml")
		response.Header().Set("Connection", "close") // the body is not read
		response.WriteHeader(status)
		text, _ := xml.Marshal(s3Error{Code: code, Message: why, Resource: request.URL.Path})
		_, _ = response.Write(append([]byte(xml.Header), text...))
	})
}

func init() {
	globalMiddlewares = append([]mux.MiddlewareFunc{guard}, globalMiddlewares...)
}
