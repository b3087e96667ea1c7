// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farandole/device.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

/// The words of a gate, as a device would have them.
struct Words {
  std::atomic<std::uint32_t> in{0}, out{0};
  Gate gate() { return {&in, 7, &out, 9}; }
  void open() { in.store(7, std::memory_order_release); }
  bool left() const { return out.load(std::memory_order_acquire) == 9; }
};

class Gates : public ::testing::TestWithParam<std::string> {};

// Goal: nothing looks at an input before its gate is open, whatever is done to it first, and the
// gate is left when the result is there.
// Method: inputs are written only once all calls have been started, and more than once: a second
// call like the first runs by the same operation.
TEST_P(Gates, InputsAreReadOnceTheyAreThere) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    constexpr std::size_t kEach = 5000;
    const auto rank = static_cast<int>(world.rank().value());
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float> sum(kEach, -1), scaled(kEach, -1), swapped(3 * kEach, -1);
      std::vector<std::int32_t> mean(kEach, -1);
      Words words[4];
      std::vector<Request> requests;
      const auto start = [&](Collective collective, void* data, DType dtype, Reduction reduction,
                             Words& its, double factor = 1) {
        auto request = world.start(collective, data, data, Count{kEach}, dtype, reduction, Rank{0},
                                   {.factor = factor, .gate = its.gate()});
        ASSERT_TRUE(request) << request.error().message;
        requests.push_back(*std::move(request));
      };
      using enum Reduction;
      start(Collective::kAllreduce, sum.data(), DType::kFloat32, kSum, words[0]);
      start(Collective::kAllreduce, scaled.data(), DType::kFloat32, kPremultipliedSum, words[1], 2);
      start(Collective::kAlltoall, swapped.data(), DType::kFloat32, kSum, words[2]);
      start(Collective::kAllreduce, mean.data(), DType::kInt32, kAverage, words[3]);
      for (Request& one : requests) EXPECT_FALSE(*one.test());
      for (const Words& its : words) EXPECT_FALSE(its.left());
      const auto mine = static_cast<float>(rank + turn);
      sum.assign(kEach, mine);
      scaled.assign(kEach, mine);
      swapped.assign(3 * kEach, mine);
      mean.assign(kEach, 3 * rank);
      for (Words& its : words) its.open();
      for (Request& one : requests) ASSERT_TRUE(one.wait());
      for (const Words& its : words) EXPECT_TRUE(its.left());
      const auto total = static_cast<float>(3 + 3 * turn);
      EXPECT_EQ(sum, std::vector<float>(kEach, total));
      EXPECT_EQ(scaled, std::vector<float>(kEach, 2 * total));
      EXPECT_EQ(mean, std::vector<std::int32_t>(kEach, 3));
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(swapped[r * kEach], static_cast<float>(r) + static_cast<float>(turn));
      }
    }
  });
}

// Goal: messages wait for their input as collectives do, also those to this rank itself.
// Method: what is sent is written only once the batch has been started, over several transports.
void send_late(const std::string& fabric) {
  Contexts contexts = make_ranks(2, fabric);
  run_ranks(contexts, [](Context&, Communicator& world) {
    const Rank self = world.rank(), other{1 - self.value()};
    std::vector<int> sent(1000, -1), got(1000, -2), copied(1000, -3);
    Words words;
    const std::array messages = {Message::send(sent.data(), Count{1000}, DType::kInt32, other),
                                 Message::receive(got.data(), Count{1000}, DType::kInt32, other),
                                 Message::send(sent.data(), Count{1000}, DType::kInt32, self),
                                 Message::receive(copied.data(), Count{1000}, DType::kInt32, self)};
    auto request = world.start(messages, {.gate = words.gate()});
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_FALSE(*request->test());
    EXPECT_FALSE(words.left());
    sent.assign(1000, self.value());
    words.open();
    ASSERT_TRUE(request->wait());
    EXPECT_TRUE(words.left());
    EXPECT_EQ(got, std::vector<int>(1000, other.value()));
    EXPECT_EQ(copied, std::vector<int>(1000, self.value()));
  });
}

TEST(GatesOfMessages, AreWaitedFor) {
  for (const char* fabric : {"inproc", "shm", "tcp", "device"}) {
    SCOPED_TRACE(fabric);
    send_late(fabric);
  }
}

// Goal: a call whose input never comes leaves its gate when it fails, so that no stream waits for
// ever. Method: the communicator is aborted.
TEST_P(Gates, AreLeftByWhatFails) {
  Contexts contexts = make_ranks(2, GetParam());
  std::atomic<int> started{0};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(10, 1.0F);
    Words words;
    auto request = world.start(Collective::kAllreduce, data.data(), data.data(), Count{10},
                               DType::kFloat32, Reduction::kSum, Rank{0}, {.gate = words.gate()});
    ASSERT_TRUE(request);
    ++started;
    while (started < 2) std::this_thread::yield();
    if (world.rank().value() == 0) {
      ASSERT_TRUE(world.abort("the device is lost"));
    }
    const auto ended = request->wait();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().kind, ErrorKind::kAborted);
    EXPECT_TRUE(words.left());
    EXPECT_EQ(data, std::vector<float>(10, 1.0F));
  });
}

// Goal: a deadline counts from when the input is there.
// Method: the input comes later than the time that an operation has, on one rank only; the other
// one has a gate as well, which opens once the first has waited long enough.
TEST_P(Gates, ADeadlineWaitsForTheInput) {
  ASSERT_EQ(::setenv("FARANDOLE_OPERATION_TIMEOUT", "0.2", 1), 0);
  Contexts contexts = make_ranks(2, GetParam());
  ASSERT_EQ(::unsetenv("FARANDOLE_OPERATION_TIMEOUT"), 0);
  std::atomic<int> waited{0};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> data(10, 1.0F);
    Words words;
    auto request = world.start(Collective::kAllreduce, data.data(), data.data(), Count{10},
                               DType::kFloat32, Reduction::kSum, Rank{0}, {.gate = words.gate()});
    ASSERT_TRUE(request);
    const auto late = request->wait_for(std::chrono::milliseconds(500));
    EXPECT_FALSE(late && *late);
    ++waited;
    while (waited < 2) std::this_thread::yield();
    words.open();
    const auto ended = request->wait();
    EXPECT_TRUE(ended) << ended.error().message;
  });
}

/// Says that its work is done only when it has been asked many times.
class ReluctantDevice final : public Device {
 public:
  std::string_view name() const override { return "reluctant"; }
  bool owns(const void*) const override { return true; }
  bool works_at_once() const override { return false; }
  Ticket start(const LocalWork& work) override {
    run(work);
    return 1;
  }
  bool is_done(Ticket) override { return ++asked_ >= kEnough; }

 private:
  static constexpr int kEnough = 100'000;  // an engine that sleeps in between takes minutes
  int asked_ = 0;
};

// Goal: nobody tells the engine that a device is done, so while it waits for one it keeps asking,
// also once it would have gone to sleep. Method: an engine that does not spin.
TEST(AwaitedDevices, AreAskedWithoutPause) {
  const auto device = std::make_shared<ReluctantDevice>();
  DeviceRegistry::instance().add(device);
  ASSERT_EQ(::setenv("FARANDOLE_SPIN", "0", 1), 0);
  {
    Contexts contexts = make_ranks(1, "inproc");
    ASSERT_EQ(::unsetenv("FARANDOLE_SPIN"), 0);
    run_ranks(contexts, [](Context&, Communicator& world) {
      const std::vector<float> in(10, 2.0F);
      std::vector<float> out(10);
      auto request = world.start(Collective::kAllreduce, in.data(), out.data(), Count{10},
                                 DType::kFloat32, Reduction::kSum, Rank{0});
      ASSERT_TRUE(request) << request.error().message;
      const auto ended = request->wait_for(std::chrono::seconds(20));
      EXPECT_TRUE(ended && *ended);
      EXPECT_EQ(in, out);
    });
  }
  DeviceRegistry::instance().remove(*device);
}

INSTANTIATE_TEST_SUITE_P(All, Gates, ::testing::Values("inproc", "shm", "tcp", "device"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace farandole::testing
