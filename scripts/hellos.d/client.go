// Begins a handshake as net/http does.
package main

import (
	"net/http"
	"os"
)

func main() {
	_, _ = http.Get("https://" + os.Args[1] + "/")
}
