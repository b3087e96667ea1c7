// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "simcuda/simulated.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {

/// The simulated driver, known to the library.
inline const Simulated& simulated() {
  static const Simulated* const gpu = [] {
    ::setenv("FARANDOLE_CUDA_LIBRARY", SIMCUDA_LIBRARY, 1);
    const auto* const made = new Simulated;
    const auto used = use_devices("cuda");
    EXPECT_TRUE(used) << used.error().message;
    return made;
  }();
  return *gpu;
}

/// Tests in which no access to memory may race with another.
class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() : races_(simulated().races()) {}
  void TearDown() override { EXPECT_EQ(simulated().races(), races_); }
  /// False where streams cannot wait for words, so that every call blocks the host.
  static bool streams_wait() {
    const char* const words = std::getenv("SIMCUDA_WORDS");
    const char* const wanted = std::getenv("FARANDOLE_DEVICE_WORDS");
    return (words == nullptr || *words == '1') && (wanted == nullptr || *wanted == '1');
  }

 private:
  const unsigned races_;
};

/// One rank's device with a stream, and memory of the device and of the host that mirror each
/// other. A device per rank: calls that wait for all streams of a device must not wait for other
/// ranks.
class Rig {
 public:
  Rig(int ordinal, std::size_t bytes)
      : gpu_(simulated()),
        context_(enter(ordinal)),
        stream_(gpu_.stream()),
        device_(gpu_.allocate(bytes)),
        before_(gpu_.pinned<std::byte>(bytes)),
        after_(gpu_.pinned<std::byte>(bytes)),
        words_(gpu_.pinned<std::uint32_t>(2)) {}
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;
  ~Rig() {
    enter();
    gpu_.check(gpu_.api().stream_destroy(stream_));
    gpu_.check(gpu_.more().memory_free(device_));
    for (void* const memory :
         {static_cast<void*>(before_), static_cast<void*>(after_), static_cast<void*>(words_)}) {
      gpu_.check(gpu_.more().host_free(memory));
    }
  }

  void* stream() const { return stream_; }
  std::byte* device() const { return reinterpret_cast<std::byte*>(device_); }
  std::byte* before() const { return before_; }
  std::byte* after() const { return after_; }

  /// Copies a part of `before` to the device, and later from the device to `after`.
  void upload(std::size_t at, std::size_t bytes) const { copy(device_ + at, before_ + at, bytes); }
  void download(std::size_t at, std::size_t bytes) const {
    copy(reinterpret_cast<cuda::Address>(after_ + at), device() + at, bytes);
  }
  /// The stream does nothing until release().
  void hold() const {
    const auto word = reinterpret_cast<cuda::Address>(words_);
    gpu_.check(gpu_.api().stream_wait_word(stream_, word, 1, cuda::kWaitAtLeast));
  }
  void release() const { std::atomic_ref(*words_).store(1); }
  void synchronize() const {
    enter();
    gpu_.check(gpu_.api().stream_synchronize(stream_));
  }
  /// The calling thread is one that has the device's context, as a framework's threads are.
  void enter() const { gpu_.check(gpu_.api().context_set(context_)); }

 private:
  cuda::Context enter(int ordinal) const {
    cuda::Context context = nullptr;
    gpu_.check(gpu_.api().context_retain(&context, ordinal));
    gpu_.check(gpu_.api().context_set(context));
    return context;
  }
  void copy(cuda::Address to, const std::byte* from, std::size_t bytes) const {
    enter();
    gpu_.check(gpu_.api().memory_copy(to, reinterpret_cast<cuda::Address>(from), bytes, stream_));
  }

  const Simulated& gpu_;
  const cuda::Context context_;
  const cuda::Stream stream_;
  const cuda::Address device_;
  std::byte *const before_, *const after_;
  std::uint32_t* const words_;
};

inline std::vector<std::unique_ptr<Rig>> make_rigs(std::size_t ranks, std::size_t bytes) {
  std::vector<std::unique_ptr<Rig>> rigs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    rigs.push_back(std::make_unique<Rig>(static_cast<int>(rank), bytes));
  }
  return rigs;
}

}  // namespace farandole::testing
