package interop;

import jakarta.jms.Connection;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;

/** Logs in with Qpid JMS as each line of standard input says; README.md has the lines and the answers. */
public final class Logins {
    private static final String PATIENCE_MS = "60000";

    private Logins() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            try (Connection connection = connect(fields[0], fields[1], fields[2], fields[3])) {
                System.out.println("in");
                lines.readLine();
            } catch (Exception problem) {
                System.out.println("refused " + String.valueOf(problem).replace('\n', ' '));
                continue;
            }
            System.out.println("out");
        }
    }

    private static Connection connect(String url, String mechanism, String user, String proof) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(
            url.replaceFirst("^ws", "amqpws") + "?" + String.join("&", options(url, mechanism, proof)));
        boolean named = !mechanism.equals("ANONYMOUS") && !mechanism.equals("EXTERNAL");
        Connection connection = named ? factory.createConnection(user, proof) : factory.createConnection();
        try {
            connection.start();
            try (Session session = connection.createSession()) {
                session.createProducer(session.createQueue("greetings")).send(session.createTextMessage("hello"));
            }
            return connection;
        } catch (Exception problem) {
            connection.close();
            throw problem;
        }
    }

    /** Beside each file of PEM stands one that Java reads. */
    private static List<String> options(String url, String mechanism, String proof) {
        List<String> options = new java.util.ArrayList<>();
        options.add("amqp.saslMechanisms=" + mechanism);
        options.add("jms.connectTimeout=" + PATIENCE_MS);
        if (url.startsWith("amqps") || url.startsWith("wss")) {
            options.add("transport.storeType=PKCS12");
            options.add("transport.trustStoreLocation=" + System.getenv("SSL_CERT_FILE") + ".p12");
            options.add("transport.trustStorePassword=word");
        }
        if (mechanism.equals("EXTERNAL")) {
            options.add("transport.keyStoreLocation=" + proof + ".p12");
            options.add("transport.keyStorePassword=word");
        }
        return options;
    }
}
