// JUnit 5 with Qpid JMS: the broker is a process that ends with the suite.

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.JMSContext;
import jakarta.jms.JMSRuntimeException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class OrdersTest {
    static Process server;
    static PrintWriter commands;
    static BufferedReader answers;
    static String url;

    @BeforeAll
    static void start() throws IOException {
        String name = System.getenv().getOrDefault("AMQP_BROKER", "amqp-broker");
        server = new ProcessBuilder(name, "test-server").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        commands = new PrintWriter(server.outputWriter(), true);
        answers = server.inputReader();
        url = answers.readLine();
    }

    @AfterAll
    static void stop() throws InterruptedException {
        commands.close();
        server.waitFor();
    }

    static String ask(String command) throws IOException {
        commands.println(command);
        String answer = answers.readLine();
        assertTrue(answer.startsWith("{\"result\""), answer);
        return answer;
    }

    static void send(String body) {
        try (JMSContext context = new JmsConnectionFactory(url).createContext()) {
            context.createProducer().send(context.createQueue("orders"), body);
        }
    }

    @Test
    void anOrderIsSent() throws IOException {
        send("a pair of shoes");
        assertEquals("{\"result\": 1}", ask("[\"depth\", \"orders\"]"));
        assertTrue(ask("[\"peek\", \"orders\"]").contains("a pair of shoes"));
        ask("[\"purge\", \"orders\"]");
    }

    @Test
    void anOrderIsRefused() throws IOException {
        ask("[\"message\", \"reject\", {\"text\": \"sold out\"}]");
        JMSRuntimeException refused = assertThrows(JMSRuntimeException.class, () -> send("another pair"));
        assertTrue(refused.getMessage().contains("sold out"), refused.getMessage());
        assertEquals("{\"result\": 0}", ask("[\"depth\", \"orders\"]"));
    }
}
