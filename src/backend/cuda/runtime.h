/* The CUDA runtime as the plugin's C side sees it: NVIDIA's header, or the simulation's, which has
 * the same names. */
#ifndef LS_BACKEND_CUDA_RUNTIME_H
#define LS_BACKEND_CUDA_RUNTIME_H

#ifdef LS_SIM
#include "backend/cuda/sim/sim_api.h"
#else
#include <cuda_runtime_api.h>
#endif

#endif
