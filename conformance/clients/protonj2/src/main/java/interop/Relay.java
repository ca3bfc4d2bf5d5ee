package interop;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** A wire for one connection that can be cut without a close, and that can swallow what the broker says. */
final class Relay implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
    private final URI broker;
    private final CountDownLatch swallowed = new CountDownLatch(1);
    private volatile boolean muted;
    private volatile Socket near;
    private volatile Socket far;

    Relay(URI broker) throws IOException {
        this.broker = broker;
        start(this::serve);
    }

    URI url() {
        return URI.create("amqp://" + server.getInetAddress().getHostAddress() + ":" + server.getLocalPort());
    }

    /** From now on nothing that the broker sends arrives. */
    void mute() {
        muted = true;
    }

    /** Whether the broker has said something that was swallowed, at the latest after the time. */
    boolean awaitSwallowed(long timeoutMs) throws InterruptedException {
        return swallowed.await(timeoutMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() throws IOException {
        server.close();
        for (Socket socket : new Socket[] {near, far}) {
            if (socket != null) {
                socket.close();
            }
        }
    }

    private static void start(Runnable work) {
        Thread thread = new Thread(work, "relay");
        thread.setDaemon(true);
        thread.start();
    }

    private void serve() {
        try {
            near = server.accept();
            far = new Socket(broker.getHost(), broker.getPort());
            start(() -> carry(near, far, false));
            carry(far, near, true);
        } catch (IOException cut) {
            // The relay was closed before or while it was used: that is what it is for.
            return;
        }
    }

    private void carry(Socket from, Socket to, boolean fromBroker) {
        byte[] octets = new byte[64 * 1024];
        try {
            for (int count = from.getInputStream().read(octets); count >= 0; count = from.getInputStream().read(octets)) {
                if (fromBroker && muted) {
                    swallowed.countDown();
                } else {
                    to.getOutputStream().write(octets, 0, count);
                }
            }
            close();
        } catch (IOException cut) {
            // The same: who reads on either side sees the end.
            return;
        }
    }
}
