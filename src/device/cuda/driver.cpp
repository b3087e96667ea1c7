// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include "base/settings.hpp"

namespace farandole::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

Error missing(const std::string& what) {
  return Error{ErrorKind::kUnsupported, "CUDA is not usable here: " + what + "."};
}

}  // namespace

const Result<Driver>& Driver::instance() {
  static const auto* const driver = new const Result<Driver>([]() -> Result<Driver> {
    auto file = text_setting("FARANDOLE_CUDA_LIBRARY");
    if (!file) return file.error();
    return load(file->empty() ? kLibrary : *file);
  }());  // threads may outlive static destructors
  return *driver;
}

Result<Driver> Driver::load(const std::string& file) {
  // Global, since libraries that stand on the driver, NCCL's among them, find it so. Never closed:
  // it has threads of its own.
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return missing(::dlerror());
  Driver driver;
  if (auto found = driver.find_functions(library, file); !found) return found.error();
  const Api& api = driver.api_;
  if (auto done = driver.check(api.init(0), "cuInit"); !done) return missing(done.error().message);
  if (auto done = driver.check(api.driver_version(&driver.version_), "cuDriverGetVersion"); !done) {
    return done.error();
  }
  if (auto done = driver.check(api.device_count(&driver.device_count_), "cuDeviceGetCount");
      !done) {
    return done.error();
  }
  if (driver.device_count_ == 0) return missing("'" + file + "' finds no device");
  return driver;
}

Result<void> Driver::find_functions(void* library, const std::string& file) {
  // The symbol names the version that api.hpp declares; cuGetProcAddress() would choose one by the
  // release of CUDA, of which releases before 11.7 give other words to wait for than later ones.
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    return function != nullptr;
  };
#define CUDA_FIND(name, symbol, parameters)                                      \
  if (!find(api_.name, #symbol)) {                                               \
    return missing("'" + file + "' has no " #symbol "; CUDA 11.7 or later has"); \
  }
  CUDA_DRIVER_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
  return {};
}

Result<void> Driver::check(Status status, std::string_view call) const {
  if (status == kSuccess) return {};
  const char *name = nullptr, *text = nullptr;
  api_.error_name(status, &name);
  api_.error_text(status, &text);
  return Error{ErrorKind::kInternal,
               std::string(call) + ": " +
                   (name == nullptr ? "error " + std::to_string(static_cast<int>(status)) : name) +
                   (text == nullptr ? "" : " (" + std::string(text) + ")")};
}

}  // namespace farandole::cuda
