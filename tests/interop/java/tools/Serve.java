import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/** Runs the main methods it is told, one after another: their exit code, their output, their errors. */
public class Serve {
    static class Ended extends Error {}

    static Integer code;

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.Procedure end = (status, message) -> {
            // A tool that catches what ends it, and ends again, has ended as it first said.
            if (code == null) code = status;
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            code = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException thrown) {
                if (code == null) {
                    thrown.getCause().printStackTrace();
                    code = 1;
                }
            }
            answers.println((code == null ? 0 : code) + "\t" + taken(out) + "\t" + taken(err));
        }
    }

    static String taken(ByteArrayOutputStream from) {
        String text = Base64.getEncoder().encodeToString(from.toByteArray());
        from.reset();
        return text;
    }
}
