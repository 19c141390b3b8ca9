"""JAX on CPUs of several processes. jax.distributed.initialize() reads the coordinator's address itself; the two numbers, which the
launcher also sets, are arguments there."""
import os

import jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]))
import jax.numpy as jnp
from jax.experimental import multihost_utils

size, rank = jax.process_count(), jax.process_index()
assert size == int(os.environ["WORLD_SIZE"]) and rank == int(os.environ["RANK"])
gathered = multihost_utils.process_allgather(jnp.array([float(rank + 1)]))
assert gathered.sum() == size * (size + 1) / 2, gathered
if rank == 0:
    print(f"peer: trained on {size}")
jax.distributed.shutdown()
