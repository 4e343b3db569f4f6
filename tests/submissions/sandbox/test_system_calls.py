"""The filter of system calls: what is dangerous is refused, and what models' libraries need is not."""

from __future__ import annotations

import errno
from dataclasses import replace

from tests.submissions.sandbox.test_sandbox import stranger as stranger
from tests.submissions.sandboxes import SMALL, Stranger


def test_dangerous_system_calls_are_refused(stranger: Stranger) -> None:
    """The filter answers before the kernel does: new namespaces, mounts, tracing, keys, whatever no model needs, and
    other kinds of sockets."""
    stranger.run("""
        import ctypes, platform, socket
        numbers = {"x86_64": {"unshare": 272, "mount": 165, "ptrace": 101, "keyctl": 250, "bpf": 321, "clone": 56,
                              "vmsplice": 278, "swapon": 167, "io_setup": 206, "inotify_init1": 294},
                   "aarch64": {"unshare": 97, "mount": 40, "ptrace": 117, "keyctl": 219, "bpf": 280, "clone": 220,
                               "vmsplice": 75, "swapon": 224, "io_setup": 0, "inotify_init1": 26}}
        libc = ctypes.CDLL(None, use_errno=True)
        def call(name, *arguments):
            answer = libc.syscall(numbers[platform.machine()][name], *arguments)
            return ctypes.get_errno() if answer < 0 else 0
        new_user = 0x10000000
        tell(calls=[call("unshare", new_user), call("mount", 0, 0, 0, 0, 0), call("ptrace", 0, 0, 0, 0),
                    call("keyctl", 0, 0, 0), call("bpf", 0, 0, 0), call("clone", new_user | 17, 0, 0, 0, 0),
                    call("vmsplice", 0, 0, 0, 0), call("swapon", 0, 0), call("io_setup", 1, 0),
                    call("inotify_init1", 0)],
             newer=[(libc.syscall(number, 0, 0, 0, 0), ctypes.get_errno())[1] for number in range(451, 475)],
             told=[attempt(lambda name=name: open(name)) for name in ("/proc/kallsyms", "/proc/cmdline")],
             netlink=attempt(lambda: socket.socket(socket.AF_NETLINK)), pair=attempt(lambda: socket.socketpair()),
             thread=attempt(lambda: __import__("threading").Thread(target=print).start()))
    """)
    assert stranger.found["calls"] == [errno.EPERM] * 10
    assert set(stranger.found["newer"]) == {errno.ENOSYS}
    assert all("refused" in told for told in stranger.found["told"])
    assert "refused" in stranger.found["netlink"]
    assert "did" in stranger.found["pair"]
    assert "did" in stranger.found["thread"]


def test_the_libraries_of_models_run(stranger: Stranger) -> None:
    """What is allowed is enough for torch, for transformers and for faiss, with threads and files of their own."""
    stranger.run(
        """
        import numpy, subprocess, faiss, safetensors.numpy, torch, tokenizers, transformers
        torch.set_num_threads(2), faiss.omp_set_num_threads(2)
        layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True).eval()
        safetensors.numpy.save_file({"x": numpy.ones(4, "f4")}, "/tmp/x.safetensors")
        with torch.inference_mode():
            vectors = layer(torch.randn(64, 16, 32))[:, 0].numpy()
        index = faiss.index_factory(32, "HNSW8")
        index.add(vectors)
        faiss.write_index(index, "/tmp/index")
        found = faiss.read_index("/tmp/index", faiss.IO_FLAG_MMAP).search(vectors, 1)[1][:, 0]
        ones = torch.ones(600, 600)
        tell(found=int((found == numpy.arange(64)).sum()), product=float((ones @ ones).sum()),
             loaded=float(safetensors.numpy.load_file("/tmp/x.safetensors")["x"].sum()),
             program=subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout)
        """,
        replace(SMALL, memory_bytes=3 << 30, processes=512, scratch_bytes=64 << 20),
    )
    assert stranger.found == {"found": 64, "product": 216e6, "loaded": 4.0, "program": "7\n"}
