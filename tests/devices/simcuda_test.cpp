// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// The simulated driver finds what it is there to find. Each fault ends its process or is counted,
// so each is tried in a process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "simcuda/calls.hpp"
#include "simcuda/settings.hpp"
#include "simcuda/simulated.hpp"

namespace farandole::testing {
namespace {

using cuda::Address;
using cuda::Event;
using cuda::Stream;

constexpr std::size_t kBytes = 64 << 10;

class Simcuda : public ::testing::Test {
 protected:
  Simcuda() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// A death test's process ends so if nothing was found.
[[noreturn]] void end_well() {
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

/// Copies to a device on one stream and back on another, with or without an event between.
[[noreturn]] void there_and_back(bool waits) {
  const Simulated gpu;
  const Address memory = gpu.allocate(kBytes);
  auto* const host = gpu.pinned<std::byte>(kBytes);
  auto* const back = gpu.pinned<std::byte>(kBytes);
  const Stream there = gpu.stream(), here = gpu.stream();
  const Event done = gpu.event();
  gpu.check(gpu.api().memory_copy(memory, reinterpret_cast<Address>(host), kBytes, there));
  gpu.check(gpu.api().event_record(done, there));
  if (waits) gpu.check(gpu.api().stream_wait_event(here, done, 0));
  gpu.check(gpu.api().memory_copy(reinterpret_cast<Address>(back), memory, kBytes, here));
  gpu.check(gpu.api().stream_synchronize(here));
  gpu.check(gpu.api().stream_synchronize(there));
  ::_exit(gpu.races() > 0 ? simcuda::kRace : 0);
}

TEST_F(Simcuda, ReportsAMissingWait) {
  EXPECT_EXIT(there_and_back(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(there_and_back(false), ::testing::ExitedWithCode(simcuda::kRace), "RACE: copy");
}

// Goal: an event orders what came before its record, not what came later on the same stream.
TEST_F(Simcuda, AnEventOrdersWhatCameBeforeIt) {
  const auto written_after_the_record = [] {
    const Simulated gpu({{"SIMCUDA_DELAY_US", "5000"}});
    const Address memory = gpu.allocate(kBytes);
    const Stream one = gpu.stream(), other = gpu.stream();
    const Event done = gpu.event();
    gpu.check(gpu.api().event_record(done, one));
    gpu.check(gpu.more().memory_set(memory, 1, kBytes, one));
    gpu.check(gpu.api().stream_wait_event(other, done, 0));
    gpu.check(gpu.more().memory_set(memory, 2, kBytes, other));
    gpu.check(gpu.api().stream_synchronize(one));
    gpu.check(gpu.api().stream_synchronize(other));
    ::_exit(gpu.races() > 0 ? simcuda::kRace : 0);
  };
  EXPECT_EXIT(written_after_the_record(), ::testing::ExitedWithCode(simcuda::kRace), "RACE");
}

// Goal: what the host has waited for is ordered before all that it enqueues then.
TEST_F(Simcuda, TheHostOrders) {
  const auto run = [](bool looks) {
    const Simulated gpu;
    const Address memory = gpu.allocate(kBytes);
    const Stream one = gpu.stream(), other = gpu.stream();
    gpu.check(gpu.more().memory_set(memory, 1, kBytes, one));
    if (looks) gpu.check(gpu.api().stream_synchronize(one));
    gpu.check(gpu.more().memory_set(memory, 2, kBytes, other));
    gpu.check(gpu.api().stream_synchronize(one));
    gpu.check(gpu.api().stream_synchronize(other));
    ::_exit(gpu.races() > 0 ? simcuda::kRace : 0);
  };
  EXPECT_EXIT(run(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(false), ::testing::ExitedWithCode(simcuda::kRace), "RACE: memset");
}

TEST_F(Simcuda, DefaultStreamIsOrderedWithBlockingStreams) {
  const auto run = [](unsigned flags) {
    const Simulated gpu;
    const Address memory = gpu.allocate(kBytes);
    const Stream stream = gpu.stream(flags);
    gpu.check(gpu.more().memory_set(memory, 1, kBytes, stream));
    gpu.check(gpu.more().memory_set(memory, 2, kBytes, nullptr));
    gpu.check(gpu.more().memory_set(memory, 3, kBytes, stream));
    gpu.check(gpu.api().stream_synchronize(stream));
    gpu.check(gpu.api().stream_synchronize(nullptr));
    ::_exit(gpu.races() > 0 ? simcuda::kRace : 0);
  };
  EXPECT_EXIT(run(0), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(cuda::kNonBlockingStream), ::testing::ExitedWithCode(simcuda::kRace), "RACE");
}

TEST_F(Simcuda, HostCannotTouchDeviceMemory) {
  const auto touch = [] {
    const Simulated gpu;
    *reinterpret_cast<volatile char*>(gpu.allocate(kBytes) + 17) = 1;
  };
  EXPECT_EXIT(touch(), ::testing::ExitedWithCode(simcuda::kFault),
              "FAULT: the host touches device memory, byte 17 of buffer");
}

TEST_F(Simcuda, OperationsStayWithinMemory) {
  const auto past_the_end = [] {
    const Simulated gpu;
    gpu.check(gpu.more().memory_set(gpu.allocate(kBytes), 1, kBytes + 1, gpu.stream()));
    ::pause();
  };
  EXPECT_EXIT(past_the_end(), ::testing::ExitedWithCode(simcuda::kFault), "FAULT: memset");
}

// Goal: a stream that waits for a word that nobody writes is reported, and so is a host that waits
// for the stream, by a call that says so or by one that allocates.
TEST_F(Simcuda, ReportsADeadlock) {
  const auto held = [](const std::function<void(const Simulated&, Stream)>& wait) {
    const Simulated gpu({{"SIMCUDA_PATIENCE_MS", "300"}});
    auto* const word = gpu.pinned<std::uint32_t>(1);
    const Stream stream = gpu.stream();
    gpu.check(
        gpu.api().stream_wait_word(stream, reinterpret_cast<Address>(word), 1, cuda::kWaitAtLeast));
    wait(gpu, stream);
    end_well();
  };
  const auto synchronize = [](const Simulated& gpu, Stream stream) {
    gpu.check(gpu.api().stream_synchronize(stream));
  };
  const auto allocate = [](const Simulated& gpu, Stream) { gpu.allocate(kBytes); };
  const auto go_on = [](const Simulated&, Stream) {};
  constexpr const char* kReport = "DEADLOCK: .* word wait, with 0 more";
  EXPECT_EXIT(held(synchronize), ::testing::ExitedWithCode(simcuda::kDeadlock), kReport);
  EXPECT_EXIT(held(allocate), ::testing::ExitedWithCode(simcuda::kDeadlock), kReport);
  EXPECT_EXIT(held(go_on), ::testing::ExitedWithCode(0), "");
}

// Goal: two streams that share a hardware queue wait for each other as they would on a device.
TEST_F(Simcuda, StreamsShareHardwareQueues) {
  const auto run = [](const char* queues) {
    const Simulated gpu({{"SIMCUDA_PATIENCE_MS", "300"}, {"SIMCUDA_QUEUES", queues}});
    auto* const word = gpu.pinned<std::uint32_t>(1);
    const Stream waiting = gpu.stream(), writing = gpu.stream();
    const auto at = reinterpret_cast<Address>(word);
    gpu.check(gpu.api().stream_wait_word(waiting, at, 1, cuda::kWaitAtLeast));
    gpu.check(gpu.api().stream_write_word(writing, at, 1, 0));
    gpu.check(gpu.api().stream_synchronize(waiting));
    end_well();
  };
  EXPECT_EXIT(run("2"), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run("1"), ::testing::ExitedWithCode(simcuda::kDeadlock), "DEADLOCK");
}

// Goal: a copy to memory that is not pinned holds the host up, one to pinned memory does not.
TEST_F(Simcuda, PageableMemoryBlocksTheHost) {
  const Simulated gpu;
  const Address memory = gpu.allocate(kBytes);
  auto* const word = gpu.pinned<std::uint32_t>(1);
  auto* const pinned = gpu.pinned<std::byte>(kBytes);
  std::vector<std::byte> pageable(kBytes);
  const Stream stream = gpu.stream();
  for (const bool blocks : {false, true}) {
    std::atomic_ref(*word).store(0);
    gpu.check(
        gpu.api().stream_wait_word(stream, reinterpret_cast<Address>(word), 1, cuda::kWaitAtLeast));
    std::atomic<bool> released{false};
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      released = true;
      std::atomic_ref(*word).store(1);
    });
    auto* const target = blocks ? pageable.data() : pinned;
    gpu.check(gpu.api().memory_copy(reinterpret_cast<Address>(target), memory, kBytes, stream));
    EXPECT_EQ(released, blocks);
    later.join();
    gpu.check(gpu.api().stream_synchronize(stream));
  }
}

TEST_F(Simcuda, CapturingStreamsTakeNoWork) {
  const Simulated gpu;
  const Stream stream = gpu.stream();
  gpu.check(gpu.more().capture(stream, 0));
  cuda::CaptureStatus status = cuda::kNotCapturing;
  gpu.check(gpu.api().stream_capture(stream, &status));
  EXPECT_EQ(status, cuda::kCapturing);
  EXPECT_EQ(gpu.more().memory_set(gpu.allocate(1), 0, 1, stream), cuda::kCaptureUnsupported);
}

TEST_F(Simcuda, AForkedChildCannotUseIt) {
  const Simulated gpu;
  const pid_t child = ::fork();
  if (child == 0) {
    Address memory = 0;
    ::_exit(gpu.more().memory_allocate(&memory, 1) == cuda::kNotInitialized ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Goal: another process reaches exported memory, sees what the exporter's event orders, and the
// checker sees both.
TEST_F(Simcuda, ChecksAccessesBetweenProcesses) {
  const auto run = [](bool waits) {
    char session[] = "/tmp/simcuda-XXXXXX";
    ::close(::mkstemp(session));
    int to_child[2], to_parent[2];
    ASSERT_EQ(::pipe(to_child), 0);
    ASSERT_EQ(::pipe(to_parent), 0);
    ::setenv("SIMCUDA_SESSION", session, 1);
    const pid_t child = ::fork();  // before either has a driver
    const Simulated gpu;
    const Stream stream = gpu.stream();
    using Handle = simcuda::IpcHandle;
    const auto share_memory =
        Simulated::find<cuda::Status (*)(Handle*, Address)>("cuIpcGetMemHandle");
    const auto open_memory =
        Simulated::find<cuda::Status (*)(Address*, Handle, unsigned)>("cuIpcOpenMemHandle_v2");
    const auto share = Simulated::find<cuda::Status (*)(Handle*, Event)>("cuIpcGetEventHandle");
    const auto open = Simulated::find<cuda::Status (*)(Event*, Handle)>("cuIpcOpenEventHandle");
    Handle handles[2];
    char word = 0;
    if (child == 0) {  // reads what the parent has written
      if (::read(to_child[0], handles, sizeof handles) != sizeof handles) ::_exit(2);
      Address memory = 0;
      Event written = nullptr;
      gpu.check(open_memory(&memory, handles[0], 1));
      gpu.check(open(&written, handles[1]));
      if (waits) gpu.check(gpu.api().stream_wait_event(stream, written, 0));
      auto* const host = gpu.pinned<std::byte>(kBytes);
      gpu.check(gpu.api().memory_copy(reinterpret_cast<Address>(host), memory, kBytes, stream));
      gpu.check(gpu.api().stream_synchronize(stream));
      EXPECT_TRUE(!waits || host[kBytes - 1] == std::byte{7});
      if (::write(to_parent[1], &word, 1) != 1) ::_exit(2);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    const Address memory = gpu.allocate(kBytes);
    const Event written = gpu.event(cuda::kEventWithoutTime | simcuda::kEventBetweenProcesses);
    gpu.check(gpu.more().memory_set(memory, 7, kBytes, stream));
    gpu.check(gpu.api().event_record(written, stream));
    gpu.check(share_memory(&handles[0], memory));
    gpu.check(share(&handles[1], written));
    ASSERT_EQ(::write(to_child[1], handles, sizeof handles), ssize_t{sizeof handles});
    ASSERT_EQ(::read(to_parent[0], &word, 1), 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::unlink(session);
    EXPECT_EQ(status, 0);
    ::_exit(::testing::Test::HasFailure() ? 1 : gpu.races() > 0 ? simcuda::kRace : 0);
  };
  ::setenv("SIMCUDA_DELAY_US", "20000", 1);
  EXPECT_EXIT(run(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(false), ::testing::ExitedWithCode(simcuda::kRace), "");
}

}  // namespace
}  // namespace farandole::testing
