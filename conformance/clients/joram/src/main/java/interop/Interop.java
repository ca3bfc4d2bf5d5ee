package interop;

import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * The conformance tests for JMS providers of the Joram project, with Qpid JMS as the provider's client: Interop
 * amqp://host:port
 *
 * <p>Prints one line for each test and exits 0 if none failed.
 */
public final class Interop extends RunListener {
    private static final String PACKAGE = "org.objectweb.jtests.jms.conform.";
    private static final String[] SUITE = {
        "connection.ConnectionTest", "connection.TopicConnectionTest", "message.MessageBodyTest",
        "message.MessageDefaultTest", "message.MessageTypeTest", "message.headers.MessageHeaderTest",
        "message.properties.JMSXPropertyTest", "message.properties.MessagePropertyConversionTest",
        "message.properties.MessagePropertyTest", "queue.QueueBrowserTest", "queue.TemporaryQueueTest",
        "selector.SelectorSyntaxTest", "selector.SelectorTest", "session.QueueSessionTest", "session.SessionTest",
        "session.TopicSessionTest", "session.UnifiedSessionTest", "topic.TemporaryTopicTest",
    };

    private String problem;
    private int ran;
    private int failed;

    private static String name(Description test) {
        return "joram: " + test.getTestClass().getSimpleName() + "." + test.getMethodName();
    }

    @Override
    public void testStarted(Description test) {
        problem = null;
    }

    @Override
    public void testFailure(Failure failure) {
        problem = String.valueOf(failure.getException()).replaceAll("\\s+", " ");
        if (System.getenv("AMQP_TRACE") != null) {
            failure.getException().printStackTrace();
        }
    }

    @Override
    public void testFinished(Description test) {
        ran++;
        failed += problem == null ? 0 : 1;
        System.out.println(problem == null ? "ok " + name(test) : "FAIL " + name(test) + ": " + problem);
    }

    /** The tests with this in their names. */
    private static Filter only(String part) {
        return new Filter() {
            @Override
            public boolean shouldRun(Description test) {
                return test.isSuite() || name(test).contains(part);
            }

            @Override
            public String describe() {
                return "with " + part + " in their names";
            }
        };
    }

    public static void main(String[] arguments) throws ClassNotFoundException {
        if (arguments.length != 1 && arguments.length != 2) {
            System.err.println("usage: Interop amqp://host:port [part of a test's name]");
            System.exit(2);
        }
        Administration.url = arguments[0];
        String part = arguments.length == 2 ? arguments[1] : "";
        Interop interop = new Interop();
        JUnitCore runner = new JUnitCore();
        runner.addListener(interop);
        Class<?>[] classes = new Class<?>[SUITE.length];
        for (int place = 0; place < SUITE.length; place++) {
            classes[place] = Class.forName(PACKAGE + SUITE[place]);
        }
        runner.run(Request.classes(classes).filterWith(only(part)));
        System.exit(interop.ran > 0 && interop.failed == 0 ? 0 : 1);
    }
}
