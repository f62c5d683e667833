"""bench_machine.py - what a result depends on: processor, memory, kernel, versions, load; and memory that is there."""
import glob
import mmap
import os
import platform
import subprocess
import time


TIMES, QUICK = 4, 0.3  # at most so often; seconds per GB of memory that is there


def touch_once(nbytes, hold=0):
    """Write to so many bytes of huge pages, keep them for some seconds, and free them: seconds per GB of the writing."""
    with mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        begin = time.monotonic()
        memory.madvise(mmap.MADV_HUGEPAGE)
        for i in range(0, nbytes, mmap.PAGESIZE):
            memory[i] = 1
        cost = (time.monotonic() - begin) / nbytes * 1e9
        time.sleep(hold)
    return cost


def touch_memory(nbytes=10**9):
    """Touch and free so much until that is quick: on a virtual machine the first touch of memory that the host has taken back
    costs 1 to 3 s per GB, whoever is measured. Seconds per GB of the last time."""
    for _ in range(TIMES):
        cost = touch_once(nbytes)
        if cost < QUICK:
            break
    return cost


def first_line(argv):
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.split('\n')[0]
    except OSError:
        return ''


def field_of(path, name):
    with open(path, encoding='utf-8') as f:
        return next((line.split(':', 1)[1].strip() for line in f if line.startswith(name)), '')


def openvino_version(folder):
    found = glob.glob(os.path.join(folder, 'openvino_genai-*.dist-info'))
    return os.path.basename(found[0])[len('openvino_genai-'):-len('.dist-info')] if found else ''


def machine(engine, openvino):
    wanted = 'avx2 f16c fma avx_vnni avx512f avx512bw avx512_vnni avx512_bf16 avx512_fp16 amx_int8 amx_bf16'.split()
    flags = field_of('/proc/cpuinfo', 'flags').split()
    return {'cpu': field_of('/proc/cpuinfo', 'model name'), 'cores': os.cpu_count(),
            'flags': ' '.join(f for f in wanted if f in flags),
            'memory_gb': round(int(field_of('/proc/meminfo', 'MemTotal').split()[0]) / 1e6, 1),
            'kernel': platform.release(), 'compiler': first_line(['gcc', '--version']),
            'commit': first_line(['git', 'describe', '--always', '--dirty']),
            'version': first_line([engine, '--version']), 'openvino': openvino_version(openvino) if openvino else '',
            'load': os.getloadavg()}
