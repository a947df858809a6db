import java.net.Socket;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/** Begins a handshake with the defaults of this Java. A name without a dot is not sent, hence the long one. */
final class Client {
    public static void main(String[] arguments) throws Exception {
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, null, null);
        int port = Integer.parseInt(arguments[0]);
        Socket plain = new Socket("127.0.0.1", port);
        ((SSLSocket) context.getSocketFactory().createSocket(plain, "host.localhost", port, true)).startHandshake();
    }
}
