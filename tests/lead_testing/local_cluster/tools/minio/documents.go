package main

import (
	"encoding/xml"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
)

// Bodies that are documents and not the bytes of an object. Upstream parses some before it looks at the signature, and
// keeps a kilobyte and more for each element: 20 MB in which parts of an upload are named took 4 GB.
const (
	mostDocumentBytes = 4 << 20  // a thousand keys to delete, or ten thousand parts with their checksums
	mostFormBytes     = 64 << 10 // a token and a session policy
	mostElements      = 100_000
)

// How often an element may be in one document.
var mostOf = map[string]int{"Object": 1000, "Part": 10_000, "Tag": 1000}

// Of a kind that upstream answers as a mistake of the request.
var errDocument = &xml.SyntaxError{Msg: "the document holds more than is needed"}

// limitOf returns how many bytes the body of a request may have.
func limitOf(request *http.Request, query url.Values) int64 {
	switch {
	case isAdministration(request.URL.Path): // of root
		return math.MaxInt64
	case request.Method == http.MethodPost && request.URL.RawQuery == "":
		return mostFormBytes
	case isDocument(request, query):
		return mostDocumentBytes
	}
	return math.MaxInt64
}

// isDocument tells whether a body is anything else than what is stored as an object, or as a part of one.
func isDocument(request *http.Request, query url.Values) bool {
	if request.Method != http.MethodPut {
		return true
	}
	_, key, _ := strings.Cut(strings.TrimLeft(request.URL.Path, "/"), "/")
	if key == "" {
		return true // of a bucket
	}
	for name := range query {
		if lower := strings.ToLower(name); lower != "uploadid" && lower != "partnumber" && !strings.HasPrefix(lower, "x-") {
			return true
		}
	}
	return false
}

// bounded returns the body of a request, which ends with an error where it is a document that holds too much.
func bounded(request *http.Request) io.ReadCloser {
	query := request.URL.Query()
	if request.Body == nil || request.Body == http.NoBody || isAdministration(request.URL.Path) || !isDocument(request, query) {
		return request.Body
	}
	return &document{ReadCloser: request.Body, left: limitOf(request, query), elements: mostElements, found: map[string]int{}}
}

// document counts the bytes and the elements of XML that pass, without keeping them.
type document struct {
	io.ReadCloser
	left     int64
	elements int
	found    map[string]int // of those in mostOf
	name     []byte         // of the element whose beginning is being read
	inName   bool
}

func (body *document) Read(buffer []byte) (int, error) {
	count, err := body.ReadCloser.Read(buffer)
	body.left -= int64(count)
	if body.left < 0 {
		return 0, errDocument
	}
	for _, each := range buffer[:count] {
		if !body.takes(each) {
			return 0, errDocument
		}
	}
	return count, err
}

func (body *document) takes(each byte) bool {
	switch {
	case each == '<':
		body.name, body.inName = body.name[:0], true
		body.elements--
		return body.elements >= 0
	case !body.inName:
	case strings.IndexByte(" \t\r\n/>", each) < 0:
		if each == ':' { // the name follows its namespace
			body.name = body.name[:0]
		} else if len(body.name) < 16 { // longer than any in mostOf
			body.name = append(body.name, each)
		}
	default:
		body.inName = false
		if most, ok := mostOf[string(body.name)]; ok {
			body.found[string(body.name)]++
			return body.found[string(body.name)] <= most
		}
	}
	return true
}
