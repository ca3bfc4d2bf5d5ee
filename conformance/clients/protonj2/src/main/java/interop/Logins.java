package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Message;

/** Logs in with protonj2 as each line of standard input says; README.md has the lines and the answers. */
public final class Logins {
    private static final long PATIENCE_MS = 60_000;

    private Logins() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Client client = Client.create()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] fields = line.split("\t", -1);
                URI url = URI.create(fields[0]);
                ConnectionOptions options = options(url.getScheme(), fields[1], fields[2], fields[3]);
                try (Connection connection = client.connect(url.getHost(), url.getPort(), options)) {
                    connection.openSender("greetings").send(Message.create("hello")).awaitAccepted();
                    System.out.println("in");
                    lines.readLine();
                } catch (Exception problem) {
                    System.out.println("refused " + String.valueOf(problem).replace('\n', ' '));
                    continue;
                }
                System.out.println("out");
            }
        }
    }

    /** Beside each file of PEM stands one that Java reads. */
    private static ConnectionOptions options(String scheme, String mechanism, String user, String proof) {
        ConnectionOptions options = new ConnectionOptions().openTimeout(PATIENCE_MS).requestTimeout(PATIENCE_MS);
        options.sendTimeout(PATIENCE_MS).reconnectEnabled(false);
        options.saslOptions().addAllowedMechanism(mechanism);
        options.transportOptions().useWebSockets(scheme.startsWith("ws"));
        if (scheme.equals("amqps") || scheme.equals("wss")) {
            options.sslOptions().sslEnabled(true).storeType("PKCS12");
            options.sslOptions().trustStoreLocation(System.getenv("SSL_CERT_FILE") + ".p12").trustStorePassword("word");
        }
        if (mechanism.equals("EXTERNAL")) {
            options.sslOptions().keyStoreLocation(proof + ".p12").keyStorePassword("word");
        } else if (!mechanism.equals("ANONYMOUS")) {
            options.user(user).password(proof);
        }
        return options;
    }
}
