package interop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;

/**
 * Between client and broker: it hands over everything, until the client has sent a certain text. Then the answers are
 * kept back and both connections are closed, once; later connections are left alone.
 */
final class Relay implements AutoCloseable {
    private static final int BUFFER_OCTETS = 65_536;
    private static final long ANSWER_MS = 200;

    private final ServerSocket listener;
    private final URI broker;
    private final String text;
    private final CountDownLatch cut = new CountDownLatch(1);
    private volatile boolean keepingBack;

    Relay(String brokerUrl, String text) throws IOException {
        this.broker = URI.create(brokerUrl);
        this.text = text;
        listener = new ServerSocket(0, 0, InetAddress.getLoopbackAddress());
        run(this::accept);
    }

    /** A URL of Qpid JMS that connects through here, again and again. */
    String url() {
        return "failover:(amqp://127.0.0.1:" + listener.getLocalPort() + ")";
    }

    /** Whether the connections were closed as planned. */
    boolean wasCut() {
        return cut.getCount() == 0;
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    private interface Task {
        void run() throws Exception;
    }

    private static void run(Task task) {
        Thread thread = new Thread(() -> {
            try {
                task.run();
            } catch (Exception closed) {
                Thread.currentThread().interrupt(); // one of the two ends is gone, and so is this thread
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            Socket server = new Socket(broker.getHost(), broker.getPort());
            run(() -> handOver(client, server, true));
            run(() -> handOver(server, client, false));
        }
    }

    private void handOver(Socket from, Socket to, boolean fromClient) throws Exception {
        try (from; to) {
            InputStream input = from.getInputStream();
            OutputStream output = to.getOutputStream();
            byte[] buffer = new byte[BUFFER_OCTETS];
            for (int count = input.read(buffer); count >= 0; count = input.read(buffer)) {
                String read = new String(buffer, 0, count, StandardCharsets.ISO_8859_1);
                boolean last = fromClient && !wasCut() && read.contains(text);
                keepingBack = keepingBack || last;
                if (fromClient || !keepingBack) {
                    output.write(buffer, 0, count);
                }
                if (last) {
                    Thread.sleep(ANSWER_MS); // for the broker to store it and to answer
                    cut.countDown();
                    keepingBack = false;
                    return;
                }
            }
        }
    }
}
