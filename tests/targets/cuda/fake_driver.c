// A driver of CUDA with no device behind it: memory is the host's, launches do nothing but what FAKE_CUDA says.
//
// FAKE_CUDA is a list, such as "hang=axpy,fault=sums,refuse=stream": a kernel of that name never ends, fails so that the
// device is lost, or is refused. With "none" there is no device. What is called and not here answers "not supported".
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NO_DEVICE = 100, ILLEGAL = 700, RESOURCES = 701, UNSUPPORTED = 801 };
typedef struct { const char* name; } Function;
typedef struct { double at; } Event;
static int lost, hanging;
static double clock_seconds;

static int asked(const char* what, const char* name) {
  const char* list = getenv("FAKE_CUDA");
  size_t length = strlen(what);
  for (const char* p = list ? list : ""; *p;) {
    size_t n = strcspn(p, ",");
    if (n > length && !strncmp(p, what, length) && p[length] == '=' && strlen(name) == n - length - 1 &&
        !strncmp(p + length + 1, name, n - length - 1))
      return 1;
    p += n + (p[n] == ',');
  }
  return 0;
}
static int state(void) {
  while (hanging) sleep(1);
  return lost ? ILLEGAL : OK;
}

int cuInit(unsigned flags) { return getenv("FAKE_CUDA") && !strcmp(getenv("FAKE_CUDA"), "none") ? NO_DEVICE : OK; }
int cuDriverGetVersion(int* version) { return *version = 13050, OK; }
int cuDeviceGetCount(int* count) { return *count = 1, OK; }
int cuDeviceGet(int* device, int number) { return *device = 0, OK; }
int cuDeviceGetName(char* name, int size, int device) { return snprintf(name, size, "a fake GPU"), OK; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) { return memset(uuid, 7, 16), OK; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = (size_t)1 << 34, OK; }
int cuDeviceGetPCIBusId(char* name, int size, int device) { return snprintf(name, size, "0000:00:00.0"), OK; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 75: *value = 9; break;          // compute capability
    case 76: *value = 0; break;
    case 38: *value = 60 << 20; break;   // second-level cache
    case 115: case 124: *value = 1; break;  // memory pools
    case 1: *value = 1024; break;
    case 16: *value = 132; break;
    default: *value = 1;
  }
  return OK;
}
static int context;
int cuDevicePrimaryCtxRetain(void** out, int device) { return *out = &context, OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { return *flags = 0, *active = 1, OK; }
int cuCtxSetCurrent(void* given) { return OK; }
int cuCtxGetCurrent(void** out) { return *out = &context, OK; }
int cuCtxPushCurrent_v2(void* given) { return OK; }
int cuCtxPopCurrent_v2(void** out) { return *out = &context, OK; }
int cuCtxGetDevice(int* device) { return *device = 0, OK; }
int cuCtxSynchronize(void) { return state(); }
int cuGetErrorName(int status, const char** out) {
  return *out = status == ILLEGAL ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_A_FAKE", OK;
}
int cuGetErrorString(int status, const char** out) { return cuGetErrorName(status, out); }

static int pool;
int cuDeviceGetDefaultMemPool(void** out, int device) { return *out = &pool, OK; }
int cuDeviceGetMemPool(void** out, int device) { return *out = &pool, OK; }
int cuMemPoolSetAttribute(void* given, int attribute, void* value) { return OK; }
int cuMemPoolGetAttribute(void* given, int attribute, void* value) { return *(uint64_t*)value = 0, OK; }
int cuMemPoolGetAccess(int* flags, void* given, void* location) { return *flags = 3, OK; }
int cuMemAllocAsync(uint64_t* out, size_t bytes, void* stream) {
  void* memory;
  if (state()) return state();
  if (bytes > (size_t)1 << 33 || posix_memalign(&memory, 512, bytes)) return 2;
  return *out = (uint64_t)memory, OK;
}
int cuMemAllocFromPoolAsync(uint64_t* out, size_t bytes, void* given, void* stream) {
  return cuMemAllocAsync(out, bytes, stream);
}
int cuMemFreeAsync(uint64_t memory, void* stream) { return free((void*)memory), OK; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return state() ? state() : (memcpy((void*)to, from, bytes), OK);
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return state() ? state() : (memcpy(to, (void*)from, bytes), OK); }
int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t bytes, void* stream) {
  clock_seconds += bytes / 4e12;  // nothing is written: half a gigabyte is filled before everything that is timed
  return state();
}
int cuMemsetD32Async(uint64_t memory, unsigned value, size_t words, void* stream) {
  return cuMemsetD8Async(memory, 0, 4 * words, stream);
}
int cuMemsetD16Async(uint64_t memory, unsigned short value, size_t words, void* stream) {
  return cuMemsetD8Async(memory, 0, 2 * words, stream);
}

int cuStreamCreateWithPriority(void** out, unsigned flags, int priority) { return *out = malloc(1), OK; }
int cuStreamCreate(void** out, unsigned flags) { return *out = malloc(1), OK; }
int cuStreamDestroy_v2(void* stream) { return OK; }
int cuStreamSynchronize(void* stream) { return state(); }
int cuStreamGetCtx(void* stream, void** out) { return *out = &context, OK; }
int cuStreamGetFlags(void* stream, unsigned* flags) { return *flags = 1, OK; }
int cuStreamGetPriority(void* stream, int* priority) { return *priority = 0, OK; }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -1, OK; }
static int recording;
int cuStreamIsCapturing(void* stream, int* capturing) { return *capturing = recording, OK; }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) { return OK; }
int cuEventCreate(void** out, unsigned flags) { return *out = calloc(1, sizeof(Event)), OK; }
int cuEventDestroy_v2(void* event) { return OK; }
int cuEventRecord(void* event, void* stream) { return ((Event*)event)->at = clock_seconds, state(); }
int cuEventSynchronize(void* event) { return state(); }
int cuEventQuery(void* event) { return state(); }
int cuEventElapsedTime(float* out, void* first, void* second) {
  return *out = (((Event*)second)->at - ((Event*)first)->at) * 1e3, state();
}
int cuEventElapsedTime_v2(float* out, void* first, void* second) { return cuEventElapsedTime(out, first, second); }

// what is recorded is not kept: a replay takes as long as one launch
int cuStreamBeginCapture_v2(void* stream, int mode) { return recording = 1, state(); }
int cuStreamEndCapture(void* stream, void** graph) { return recording = 0, *graph = malloc(1), state(); }
int cuStreamGetCaptureInfo_v3(void* stream, int* capturing, uint64_t* id, void** graph, void** a, void** b, size_t* n) {
  *capturing = recording;
  if (id) *id = 1;
  if (graph) *graph = &pool;
  if (n) *n = 0;
  return OK;
}
int cuStreamGetCaptureInfo_v2(void* stream, int* capturing, uint64_t* id, void** graph, void** a, size_t* n) {
  return cuStreamGetCaptureInfo_v3(stream, capturing, id, graph, a, 0, n);
}
int cuGraphInstantiateWithFlags(void** out, void* graph, uint64_t flags) { return *out = malloc(1), OK; }
int cuGraphInstantiateWithParams(void** out, void* graph, void* given) { return *out = malloc(1), OK; }
int cuUserObjectCreate(void** out, void* given, void* destroy, unsigned count, unsigned flags) { return *out = &pool, OK; }
int cuUserObjectRelease(void* object, unsigned count) { return OK; }
int cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) { return OK; }
int cuGraphReleaseUserObject(void* graph, void* object, unsigned count) { return OK; }
int cuGraphDestroy(void* graph) { return OK; }
int cuGraphExecDestroy(void* graph) { return OK; }
int cuGraphUpload(void* graph, void* stream) { return OK; }
int cuGraphLaunch(void* graph, void* stream) { return clock_seconds += 5e-6, state(); }

int cuLibraryLoadData(void** out, const void* code, void* a, void* b, unsigned c, void* d, void* e, unsigned f) {
  return *out = malloc(1), memcmp(code, "\177ELF", 4) ? 200 : OK;
}
int cuLibraryUnload(void* library) { return OK; }
int cuLibraryGetKernel(void** out, void* library, const char* name) {
  Function* made = malloc(sizeof *made);
  made->name = strdup(name);
  return *out = made, OK;
}
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) { return *value = 0, OK; }
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  return value > 227 << 10 ? INVALID : OK;
}
int cuKernelGetLibrary(void** out, void* kernel) { return *out = kernel, OK; }
int cuLaunchKernel(Function* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  if (state()) return state();
  if (asked("refuse", kernel->name)) return RESOURCES;
  if (asked("fault", kernel->name)) lost = 1;
  if (asked("hang", kernel->name)) hanging = 1;
  clock_seconds += 5e-6;
  return OK;
}
int cuTensorMapEncodeTiled(void* out, int dtype, unsigned rank, void* address, const uint64_t* shape,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* apart, int interleave,
                           int swizzle, int promotion, int fill) {
  if ((uintptr_t)out % 64 || (uintptr_t)address % 16 || rank < 1 || rank > 5 || interleave || fill) return INVALID;
  uint64_t words[16] = {(uint64_t)address, dtype, rank, swizzle};
  for (unsigned d = 0; d < rank; ++d) {
    if (!shape[d] || !box[d] || box[d] > 256 || apart[d] != 1 || (d + 1 < rank && strides[d] % 16)) return INVALID;
    words[4 + 2 * d] = shape[d] << 16 | box[d];
    if (d + 1 < rank) words[5 + 2 * d] = strides[d];
  }
  return memcpy(out, words, 128), OK;
}

// A function of its own for each name that is not here, so that it can say which was called.
enum { MOST = 1024 };
static char missing[MOST][64];
static int unsupported(int number) {
  if (getenv("FAKE_CUDA_LOG")) fprintf(stderr, "not here: %s\n", missing[number]);
  return UNSUPPORTED;
}
#define _1(n) static int missing_##n(void) { return unsupported(0x##n); }
#define _16(n) _1(n##0) _1(n##1) _1(n##2) _1(n##3) _1(n##4) _1(n##5) _1(n##6) _1(n##7) \
  _1(n##8) _1(n##9) _1(n##a) _1(n##b) _1(n##c) _1(n##d) _1(n##e) _1(n##f)
#define _256(n) _16(n##0) _16(n##1) _16(n##2) _16(n##3) _16(n##4) _16(n##5) _16(n##6) _16(n##7) \
  _16(n##8) _16(n##9) _16(n##a) _16(n##b) _16(n##c) _16(n##d) _16(n##e) _16(n##f)
_256(0) _256(1) _256(2) _256(3)
#undef _1
#define _1(n) missing_##n,
static int (*const stubs[MOST])(void) = {_256(0) _256(1) _256(2) _256(3)};

#define _S(name) {#name, (void*)name}
static const struct { const char* name; void* function; } table[] = {
#include "fake_driver.table"
};
int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* found) {
  char wanted[128];
  for (int suffix = 3; suffix >= 0; --suffix) {
    snprintf(wanted, sizeof wanted, suffix > 1 ? "%s_v%d" : "%s", name, suffix);
    for (unsigned i = 0; i < sizeof table / sizeof *table; ++i)
      if (!strcmp(table[i].name, wanted)) {
        if (found) *found = 0;
        return *out = table[i].function, OK;
      }
  }
  static int count;
  if (count == MOST) return UNSUPPORTED;
  snprintf(missing[count], sizeof *missing, "%s", name);
  if (found) *found = 0;
  return *out = (void*)stubs[count++], OK;
}
int cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
