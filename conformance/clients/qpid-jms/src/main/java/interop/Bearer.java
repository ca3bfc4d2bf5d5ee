package interop;

import java.nio.charset.StandardCharsets;
import java.security.Principal;
import org.apache.qpid.jms.sasl.AbstractMechanism;
import org.apache.qpid.jms.sasl.Mechanism;
import org.apache.qpid.jms.sasl.MechanismFactory;

/** OAUTHBEARER (RFC 7628), which Qpid JMS takes as a mechanism of its users: META-INF/services names this factory. */
public final class Bearer implements MechanismFactory {
    @Override
    public Mechanism createMechanism() {
        return new Exchange();
    }

    private static final class Exchange extends AbstractMechanism {
        @Override
        public int getPriority() {
            return PRIORITY.LOWEST.getValue();
        }

        @Override
        public String getName() {
            return "OAUTHBEARER";
        }

        @Override
        public byte[] getInitialResponse() {
            return ("n,,\1auth=Bearer " + getPassword() + "\1\1").getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public byte[] getChallengeResponse(byte[] challenge) {
            return new byte[] {1};
        }

        @Override
        public boolean isApplicable(String username, String password, Principal localPrincipal) {
            return password != null;
        }

        @Override
        public boolean isEnabledByDefault() {
            return false;
        }
    }
}
