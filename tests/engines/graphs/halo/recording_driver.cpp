// A driver without a device: it answers as CUDA's does and keeps what the last launch was given.
#include <cstring>

extern "C" {
int current_contexts = 0;
int shared_bytes_allowed = 48 * 1024;
long long launched[8];   // grid, threads, shared bytes, stream, launches
char arguments[64];      // a pointer, an int, a float, a pointer, as a kernel would find them
int lost_context = 0;    // fail the next launch as in a thread that has no context

int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &current_contexts, 0; }
int cuCtxPushCurrent_v2(void* context) { return ++current_contexts, context == &current_contexts ? 0 : 201; }
int cuCtxPopCurrent_v2(void**) { return --current_contexts, 0; }
int cuCtxSetCurrent(void*) { return lost_context = 0, 0; }
int cuModuleLoadData(void** module, const char* code) {
    *module = arguments;
    return current_contexts < 1 ? 201 : std::memcmp(code, "code", 4) == 0 ? 0 : 200;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = launched;
    return module != arguments ? 400 : std::strcmp(name, "kernel") == 0 ? 0 : 500;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
    if (attribute != 8 || value > 227 * 1024) return 1;
    return shared_bytes_allowed = value, 0;
}
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared_bytes, void* stream, void** parameters, void**) {
    if (lost_context) return 201;
    if (function != launched || int(shared_bytes) > shared_bytes_allowed) return 1;
    const long long all[] = {x, y, z, threads, shared_bytes, (long long)stream, launched[6] + 1};
    std::memcpy(launched, all, sizeof all);
    std::memcpy(arguments, parameters[0], 8);
    std::memcpy(arguments + 8, parameters[1], 4);
    std::memcpy(arguments + 12, parameters[2], 4);
    std::memcpy(arguments + 16, parameters[3], 8);
    return 0;
}
int cuGetErrorString(int status, const char** text) {
    *text = status == 200 ? "device kernel image is invalid" : status == 500 ? "named symbol not found" : "other";
    return 0;
}
}
