# SPDX-License-Identifier: Apache-2.0
"""What is installed: files that run with old system libraries, stubs that are true, the layout of the kernel hub."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import leapquant
import pytest
from conftest import need

PACKAGE = Path(leapquant.__file__).parent
CHECK_FLOOR = Path(__file__).parents[1] / "packaging" / "check_floor.py"

# What glibc before 2.34 does with a program whose start code leaves the constructors to it.
OLD_START = """
#include <stdlib.h>
#include <unistd.h>
int old_start(int (*main)(int, char**, char**), int argc, char** argv);
int old_start(int (*main)(int, char**, char**), int argc, char** argv) {
  if (write(2, "old start", 9) != 9) abort();
  exit(main(argc, argv, argv + argc + 1));
}
__asm__(".symver old_start, __libc_start_main@@GLIBC_2.2.5");
"""


def hub_variants():
    """Folders of the variants below LQ_TEST_HUB, where the component `hub` was installed to."""
    hub = Path(os.environ.get("LQ_TEST_HUB", "/nowhere"))
    variants = sorted(hub.glob("build/*"))
    need(variants, "folder of the kernel hub", "LQ_REQUIRE_HUB")
    return variants


def need_tools(*tools):
    need(all(map(shutil.which, tools)) and CHECK_FLOOR.exists(), " and ".join(tools), "LQ_REQUIRE_BUILD_TOOLS")


def check_floor(*folders):
    done = subprocess.run([sys.executable, CHECK_FLOOR, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_runs_with_manylinux_2_28():
    need_tools("objdump")
    check_floor(PACKAGE)


def test_hub_variants_run_with_manylinux_2_28():
    need_tools("objdump")
    check_floor(*hub_variants())


def test_floor_notices_a_young_symbol(tmp_path):
    need_tools("objdump", "cc")
    source = tmp_path / "young.c"
    source.write_text("#include <pthread.h>\nvoid* address(void) { return (void*)&pthread_create; }\n")
    command = ["cc", "-shared", "-fPIC", "-o", tmp_path / "young.so", source]
    subprocess.run(command, check=True)
    done = subprocess.run([sys.executable, CHECK_FLOOR, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pthread_create@GLIBC_2.34" in done.stdout


def test_program_starts_with_an_old_glibc(tmp_path):
    need_tools("cc")
    source, versions, library = (tmp_path / name for name in ("start.c", "start.map", "start.so"))
    source.write_text(OLD_START)
    versions.write_text("GLIBC_2.2.5 {};")
    command = ["cc", "-shared", "-fPIC", "-o", library, source, f"-Wl,--version-script={versions}"]
    subprocess.run(command, check=True)
    command = [PACKAGE / "bin" / "leapquant", "info"]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "old start"
    assert done.stdout.startswith("leapquant ")


def names_bound(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets)


def test_stub_of_the_module_is_complete():
    hidden = {"_module", "_Array"}
    assert set(names_bound(PACKAGE / "_native.py")) - hidden == set(names_bound(PACKAGE / "_native.pyi")) - hidden
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("field", ["name", "id", "version", "license", "python-depends", "backend"])
def test_hub_metadata(field):
    for variant in hub_variants():
        metadata = json.loads((variant / "metadata.json").read_text(encoding="utf-8"))
        assert metadata[field]
        assert f"-{metadata['backend']['type'].replace('cuda', 'cu')}" in variant.name


def test_hub_imports_are_relative():
    """The loader gives a kernel a name of its own."""
    for path in (path for variant in hub_variants() for path in variant.glob("*.py")):
        imports = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        names = [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in imports if isinstance(node, ast.ImportFrom) and node.level == 0]
        assert not [name for name in names if name.partition(".")[0] == "leapquant"], path
