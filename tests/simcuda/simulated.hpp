// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <utility>

#include "device/cuda/driver.hpp"

namespace farandole::testing {

/// Functions of the driver that only tests call.
struct MoreOfApi {
  cuda::Status (*memory_allocate)(cuda::Address* address, std::size_t bytes);
  cuda::Status (*memory_free)(cuda::Address address);
  cuda::Status (*memory_set)(cuda::Address to, unsigned char value, std::size_t bytes,
                             cuda::Stream stream);
  cuda::Status (*host_allocate)(void** memory, std::size_t bytes, unsigned flags);
  cuda::Status (*host_free)(void* memory);
  cuda::Status (*capture)(cuda::Stream stream, int mode);
  unsigned (*races)();
  unsigned long (*calls_of)(long thread);
};

/// The simulated driver of this process, with this thread in its first device's context.
class Simulated {
 public:
  using Variables = std::initializer_list<std::pair<const char*, const char*>>;
  explicit Simulated(Variables environment = {}) {
    for (const auto& [name, value] : environment) ::setenv(name, value, 1);
    ::setenv("SIMCUDA_DEVICES", "8", 0);
    auto loaded = cuda::Driver::load(SIMCUDA_LIBRARY);
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      std::abort();
    }
    driver_.emplace(*loaded);
    more_ = {find<decltype(more_.memory_allocate)>("cuMemAlloc_v2"),
             find<decltype(more_.memory_free)>("cuMemFree_v2"),
             find<decltype(more_.memory_set)>("cuMemsetD8Async"),
             find<decltype(more_.host_allocate)>("cuMemHostAlloc"),
             find<decltype(more_.host_free)>("cuMemFreeHost"),
             find<decltype(more_.capture)>("cuStreamBeginCapture_v2"),
             find<decltype(more_.races)>("simcuda_races"),
             find<decltype(more_.calls_of)>("simcuda_calls_of")};
    cuda::Context context = nullptr;
    check(api().context_retain(&context, 0));
    check(api().context_set(context));
  }

  const cuda::Driver& driver() const { return *driver_; }
  const cuda::Api& api() const { return driver_->api(); }
  const MoreOfApi& more() const { return more_; }
  void check(cuda::Status status) const {
    if (status == cuda::kSuccess) return;
    ADD_FAILURE() << driver_->check(status, "call").error().message;
  }

  cuda::Address allocate(std::size_t bytes) const {
    cuda::Address made = 0;
    check(more_.memory_allocate(&made, bytes));
    return made;
  }
  template <class T>
  T* pinned(std::size_t count) const {
    void* made = nullptr;
    check(more_.host_allocate(&made, count * sizeof(T), cuda::kHostMapped));
    return static_cast<T*>(made);
  }
  cuda::Stream stream(unsigned flags = cuda::kNonBlockingStream) const {
    cuda::Stream made = nullptr;
    check(api().stream_create(&made, flags, 0));
    return made;
  }
  cuda::Event event(unsigned flags = cuda::kEventWithoutTime) const {
    cuda::Event made = nullptr;
    check(api().event_create(&made, flags));
    return made;
  }
  unsigned races() const { return more_.races(); }
  /// A function of the loaded library.
  template <class Pointer>
  static Pointer find(const char* symbol) {
    return reinterpret_cast<Pointer>(::dlsym(RTLD_DEFAULT, symbol));
  }

 private:
  std::optional<cuda::Driver> driver_;
  MoreOfApi more_{};
};

}  // namespace farandole::testing
