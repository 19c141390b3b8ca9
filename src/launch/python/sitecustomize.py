"""Ranks on CPUs that `lockstep run` starts find this file before other sitecustomize modules.

To Lightning's Trainer the CPUs of a machine are one device, so that devices="auto" would mean one
process to each of several ranks: every one would train alone. Here it means the ranks of this
machine. Fabric has a variable for it, LT_DEVICES; the Trainer's is for scripts that do not speak of
devices. Nothing else is touched, and a program without Lightning never notices."""
import os
import sys


class TrainerOfRanks:
    """Imports the module that knows how many CPU devices there are, and corrects it."""

    modules = ("lightning.pytorch.accelerators.cpu", "pytorch_lightning.accelerators.cpu")

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None:
            self.correct_after(spec.loader)
        return spec

    def correct_after(self, loader):
        execute = loader.exec_module

        def execute_and_correct(module):
            execute(module)
            ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
            # Another Lightning, or a process that was given another environment, stays as it is.
            if ranks.isdigit() and hasattr(module, "CPUAccelerator"):
                module.CPUAccelerator.auto_device_count = staticmethod(lambda: int(ranks))

        loader.exec_module = execute_and_correct


def run_next_sitecustomize():
    """The one that this one hides, if there is one: the distribution's, or somebody's own."""
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
sys.meta_path.insert(0, TrainerOfRanks())
run_next_sitecustomize()
