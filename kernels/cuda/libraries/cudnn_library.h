/* cuDNN, opened for a device, or from the description of one (the JSON that cuDNN writes and reads): then it builds plans on
 * machines without that device, or without any, but cannot run them. */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/libraries/check.h"

typedef struct CudnnLibrary CudnnLibrary;

/* `refused` is borrowed. */
NODISCARD Status cudnn_open(cudaStream_t stream, PlanRefusals *refused, CudnnLibrary **made);
NODISCARD Status cudnn_open_described(const char *json, CudnnLibrary **made);
void cudnn_close(CudnnLibrary *library);       /* NULL is fine */
void cudnn_describe(char *text, size_t bytes); /* "cuDNN 9.19.0" */
/* The last failure (status_message) is one that passes over a candidate. NULL: nobody counts them. */
void plan_refused(PlanRefusals *refused);
/* Keeps NVRTC loaded. cuDNN loads it for each plan that it considers and unloads it again, which takes most of the time of its
 * search. */
void nvrtc_hold(void);
/* The description of a device of this machine. */
NODISCARD Status cudnn_device_json(int ordinal, char *json, size_t bytes);
