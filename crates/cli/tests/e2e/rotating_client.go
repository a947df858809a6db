// Connects to each address that it reads, with one cache of sessions, and with the certificate that is in client.pem and
// client.key at that time. Writes how that went, with the number of the connection.
//
// Arguments: a file with the authority of the server, and the version of TLS, 1.2 or 1.3.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

func main() {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	version := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[os.Args[2]]
	config := &tls.Config{
		RootCAs:            roots,
		ServerName:         "localhost",
		MinVersion:         version,
		MaxVersion:         version,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair("client.pem", "client.key")
			return &pair, err
		},
	}
	lines := bufio.NewScanner(os.Stdin)
	for number := 1; lines.Scan(); number++ {
		fmt.Printf("%d: %s.\n", number, connect(lines.Text(), config))
	}
}

func connect(address string, config *tls.Config) string {
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		return "failed, " + err.Error()
	}
	defer connection.Close()
	// Tickets of TLS 1.3 come before the echo.
	if _, err := connection.Write([]byte("hello\n")); err != nil {
		return "failed, " + err.Error()
	}
	if _, err := bufio.NewReader(connection).ReadString('\n'); err != nil {
		return "failed, " + err.Error()
	}
	if connection.ConnectionState().DidResume {
		return "resumed"
	}
	return "full"
}
