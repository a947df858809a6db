// The echo application on the JDK's own HTTP and HTTPS server: sends each request's body back.
//   java -Dsun.net.httpserver.nodelay=true Echo.java --listen 127.0.0.1:PORT [--cert FILE --key FILE]

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsParameters;
import com.sun.net.httpserver.HttpsServer;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

public final class Echo {
    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            options.put(args[i], args[i + 1]);
        }
        String[] listen = options.get("--listen").split(":");
        InetSocketAddress address = new InetSocketAddress(listen[0], Integer.parseInt(listen[1]));
        HttpServer server;
        if (options.containsKey("--cert")) {
            HttpsServer https = HttpsServer.create(address, 1024);
            https.setHttpsConfigurator(new Tls13(context(options.get("--cert"), options.get("--key"))));
            server = https;
        } else {
            server = HttpServer.create(address, 1024);
        }
        server.createContext("/", Echo::echo);
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }

    private static void echo(HttpExchange exchange) throws IOException {
        try (exchange) {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
        }
    }

    private static SSLContext context(String certificate, String key) throws Exception {
        byte[] chain = Files.readAllBytes(Path.of(certificate));
        Certificate leaf = CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(chain));
        String pem = Files.readString(Path.of(key)).replaceAll("-----[A-Z ]+-----|\\s", "");
        PrivateKey secret = KeyFactory.getInstance(leaf.getPublicKey().getAlgorithm())
                .generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry("tls", secret, new char[0], new Certificate[] {leaf});
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, new char[0]);
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private static final class Tls13 extends HttpsConfigurator {
        Tls13(SSLContext context) {
            super(context);
        }

        @Override
        public void configure(HttpsParameters parameters) {
            SSLParameters tls = getSSLContext().getDefaultSSLParameters();
            tls.setProtocols(new String[] {"TLSv1.3"});
            tls.setCipherSuites(new String[] {"TLS_AES_128_GCM_SHA256"});
            parameters.setSSLParameters(tls);
        }
    }
}
