"""Import aiokafka in two threads at once."""

import subprocess
import sys

PROGRAM = """
import sys
from threading import Thread, current_thread
from korvet.wire import batch_builder, compression

class Between:
    def find_spec(self, name, path, target=None):
        if name == "aiokafka.consumer.fetcher" and current_thread() is first:
            second.start()
            second.join(0.3)

def build():
    built.append(batch_builder.build([(0, 1, b"k", b"v", [])]))

built = []
sys.meta_path.insert(0, Between())
first = Thread(target=lambda: built.append(compression.compress(compression.SNAPPY, b"x")))
second = Thread(target=build)
first.start()
first.join()
second.join()
print(len(built))
"""


def test_a_thread_may_decode_while_another_imports_the_codecs() -> None:
    """Both failed with an ImportError: a Produce, and the task that copies to segments."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "")
