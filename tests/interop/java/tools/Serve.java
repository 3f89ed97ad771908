import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;

/** Runs the main methods that its input names, one after another; prints exit code, output and errors. */
public class Serve {
    static class Ended extends Error {}

    static Integer code;

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Class<?> exit = exit(), procedure = Class.forName(exit.getName() + "$Procedure");
        Object end = Proxy.newProxyInstance(Serve.class.getClassLoader(), new Class<?>[] {procedure}, (self, method, words) -> {
            // A tool may catch the exception of its exit and exit again: the first exit code counts.
            if (code == null) code = (Integer) words[0];
            throw new Ended();
        });
        for (String name : new String[] {"setExitProcedure", "setHaltProcedure"})
            exit.getMethod(name, procedure).invoke(null, end);
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

    /** Kafka 4.4 has moved the class. */
    static Class<?> exit() throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException moved) {
            return Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
    }

    static String taken(ByteArrayOutputStream from) {
        String text = Base64.getEncoder().encodeToString(from.toByteArray());
        from.reset();
        return text;
    }
}
