// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/asymmetric_fence.hpp"
#include "collectives/counters.hpp"
#include "unit/frontend/ranks.hpp"

namespace farandole::testing {
namespace {

Request start_sum(Communicator& world, const std::vector<float>& in, std::vector<float>& out) {
  auto request = world.start(Collective::kAllreduce, in.data(), out.data(), Count{in.size()},
                             DType::kFloat32, Reduction::kSum, Rank{0}, {.background = false});
  EXPECT_TRUE(request) << request.error().message;
  return *std::move(request);
}

// By calls that ThreadSanitizer looks at as a whole: loops over millions of elements took it
// minutes.
template <class T>
void copy(const std::vector<T>& from, T* to) {
  std::memcpy(to, from.data(), from.size() * sizeof(T));
}
template <class T>
bool is_same(const std::vector<T>& wanted, const T* got) {
  return std::memcmp(wanted.data(), got, wanted.size() * sizeof(T)) == 0;
}

/// What the engine is writing meanwhile, which ThreadSanitizer would report.
[[gnu::no_sanitize("thread")]] float value_now(const volatile float* place) {
  return *place;
}

void gather_when_the_other_has_its_part(Context& context, Communicator& world,
                                        std::atomic<int>& copied) {
  const auto rank = static_cast<std::size_t>(world.rank().value());
  constexpr std::size_t kEach = 40'000;
  const auto memory = context.allocate(Bytes{3 * kEach * sizeof(float)});
  ASSERT_TRUE(memory);
  auto* own = reinterpret_cast<float*>(memory->get());
  float* all = own + kEach;
  for (int turn = 1; turn <= 3; ++turn) {
    const std::vector<float> mine(kEach, static_cast<float>(turn + 10 * world.rank().value()));
    copy(mine, own);
    copy(std::vector<float>(2 * kEach, -1.0F), all);
    while (rank == 1 && copied < turn) std::this_thread::yield();
    auto request = world.start(Collective::kAllgather, own, all, Count{kEach}, DType::kFloat32,
                               Reduction::kSum, Rank{0}, {});
    ASSERT_TRUE(request) << request.error().message;
    if (rank == 0) {
      const float* last = all + kEach - 1;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (value_now(last) != mine[0] && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      EXPECT_EQ(value_now(last), mine[0]) << "turn " << turn;
      copied = turn;
    }
    ASSERT_TRUE(request->wait());
    EXPECT_EQ(all[rank * kEach], mine[0]);
    EXPECT_EQ(all[2 * kEach - 1], static_cast<float>(turn + 10));
  }
}

// Goal: a rank's own part does not wait for a peer that reads it where it is.
// Method: rank 1 joins in an allgather only once rank 0 has its own part.
TEST(OwnParts, DoNotWaitForTheirReaders) {
  for (const char* fabric : {"inproc", "shm", "kernel"}) {
    SCOPED_TRACE(fabric);
    Contexts contexts = make_ranks(2, fabric);
    std::atomic<int> copied{0};
    run_ranks(contexts, [&](Context& context, Communicator& world) {
      gather_when_the_other_has_its_part(context, world, copied);
    });
  }
}

class Repeat : public ::testing::TestWithParam<std::string> {};

// Goal: a call that is equal to an earlier one, but for its data, gives what its own data make.
// Method: allreduces, reduces and broadcasts of a few sizes, roots and reductions, in place and
// not, come back in turns, each time on other buffers with other values.
TEST_P(Repeat, EqualCallsUseTheirOwnBuffers) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const auto rank = static_cast<float>(world.rank().value());
    std::deque<std::vector<float>> buffers;  // all of them, so that none gets another's address
    const auto buffer = [&](std::size_t n, float value) -> std::vector<float>& {
      return buffers.emplace_back(n, value);
    };
    for (int turn = 0; turn < 4; ++turn) {
      const auto base = static_cast<float>(turn + 1);
      for (const std::size_t n : {1u, 17u, 1500u, 40'000u}) {
        for (int root = 0; root < 3; ++root) {
          const bool is_root = world.rank().value() == root;
          const std::vector<float>& mine = buffer(n, base + rank);
          std::vector<float>&out = buffer(n, -1), &in_place = buffer(n, base + rank);
          std::vector<float>&most = buffer(n, -1), &sent = buffer(n, is_root ? base + rank : -1);
          const Count count{n};
          ASSERT_TRUE(world.allreduce(mine.data(), out.data(), count, DType::kFloat32));
          ASSERT_TRUE(world.allreduce(in_place.data(), in_place.data(), count, DType::kFloat32));
          ASSERT_TRUE(world.reduce(mine.data(), is_root ? most.data() : nullptr, count,
                                   DType::kFloat32, Rank{root}, Reduction::kMax));
          ASSERT_TRUE(
              world.broadcast(sent.data(), sent.data(), count, DType::kFloat32, Rank{root}));
          std::vector<float>&rows = buffer(3 * n, base + rank), &swapped = buffer(3 * n, -1);
          ASSERT_TRUE(world.alltoall(rows.data(), swapped.data(), count, DType::kFloat32));
          ASSERT_TRUE(world.alltoall(rows.data(), rows.data(), count, DType::kFloat32));
          EXPECT_EQ(rows, swapped);
          EXPECT_EQ(rows[n], base + 1);
          EXPECT_EQ(out, std::vector<float>(n, 3 * base + 3));
          EXPECT_EQ(in_place, out);
          EXPECT_EQ(most, std::vector<float>(n, is_root ? base + 2 : -1));
          EXPECT_EQ(sent, std::vector<float>(n, base + static_cast<float>(root)));
        }
      }
    }
  });
}

// Goal: away from the root a reduction uses the `out` that it is given, or memory of its own; never
// the `out` of an earlier call, nor none. Method: every algorithm, with `out` and without in turns.
TEST_P(Repeat, AReductionIsGivenAnOutputOrNot) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const auto rank = static_cast<float>(world.rank().value());
    for (const char* algorithm :
         {"chain", "direct", "double_binary_tree", "knomial", "rabenseifner"}) {
      const std::vector<float> mine(1000, rank);
      std::vector<float> kept(1000, -1), result(1000, -1);
      for (int turn = 0; turn < 6; ++turn) {
        float* out = turn % 2 == 0 ? kept.data() : nullptr;
        if (turn == 1) kept.assign(1000, -2);
        if (rank == 2) out = result.data();
        const auto reduced = world.reduce(mine.data(), out, Count{1000}, DType::kFloat32, Rank{2},
                                          Reduction::kSum, {.algorithm = algorithm});
        ASSERT_TRUE(reduced) << reduced.error().message;
        if (rank == 2) {
          EXPECT_EQ(result, std::vector<float>(1000, 6)) << algorithm;
        } else if (turn == 1) {
          EXPECT_EQ(kept, std::vector<float>(1000, -2)) << algorithm;
        }
      }
    }
  });
}

// Goal: a large allreduce, whose result leaves while it is made, is right whatever memory its
// buffers lie in and whichever rank is late, in place and not, sums and averages, again and again.
// Method: sizes around those at which messages travel otherwise; every rank takes the library's
// memory in other turns; now and then one of them begins late.
TEST_P(Repeat, ResultsLeaveWhileTheyAreMade) {
  for (const int size : {2, 5}) {
    Contexts contexts = make_ranks(size, GetParam());
    run_ranks(contexts, [size](Context& context, Communicator& world) {
      const int rank = world.rank().value();
      for (const std::size_t n : {5'061u, 40'001u, 262'144u, 850'003u}) {
        auto library = context.allocate(Bytes{2 * n * sizeof(float)});
        ASSERT_TRUE(library);
        std::vector<float> heap(2 * n), own(n), sums(n), averages_of_all(n);
        const auto whole = static_cast<float>(size * size * (size + 1) / 2);
        for (std::size_t i = 0; i < n; ++i) {
          const auto each = static_cast<float>(i % 1021);
          own[i] = static_cast<float>((rank + 1) * size) + each;
          sums[i] = whole + static_cast<float>(size) * each;
          averages_of_all[i] = static_cast<float>(size * (size + 1) / 2) + each;
        }
        const std::vector<float> nothing(n, -1);
        for (int turn = 0; turn < 12; ++turn) {
          const bool in_place = turn % 2 == 0, averages = turn % 3 == 0;
          const bool owned = (turn >> 1 >> (rank % 3)) % 2 == 0;
          float* in = owned ? reinterpret_cast<float*>(library->get()) : heap.data();
          float* out = in_place ? in : in + n;
          copy(nothing, out);
          copy(own, in);
          if (turn % size == rank) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          ASSERT_TRUE(world.allreduce(in, out, Count{n}, DType::kFloat32,
                                      averages ? Reduction::kAverage : Reduction::kSum));
          EXPECT_TRUE(is_same(averages ? averages_of_all : sums, out))
              << n << " elements, turn " << turn;
        }
      }
    });
  }
}

// Goal: a rank's own part of what outgrows the caches is copied like the others', odd lengths and
// what is there already included. Method: allgathers, apart and in place, twice each by one
// operation, and a broadcast whose root has another output; every element compared.
TEST_P(Repeat, LargeOwnPartsAreCopied) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank().value());
    constexpr std::size_t kEach = 2'200'003;
    const auto value = [](std::size_t owner, std::size_t i) {
      return static_cast<std::int32_t>(owner * 5'000'000 + i);
    };
    for (const bool in_place : {false, true, false, true}) {
      std::vector<std::int32_t> all(2 * kEach, -1), apart(kEach);
      std::int32_t* mine = in_place ? all.data() + rank * kEach : apart.data();
      for (std::size_t i = 0; i < kEach; ++i) mine[i] = value(rank, i);
      ASSERT_TRUE(world.allgather(mine, all.data(), Count{kEach}, DType::kInt32));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        wrong += all[i] == value(i / kEach, i % kEach) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0u) << in_place;
      std::vector<std::int32_t> sent(all.size(), in_place ? 3 : 4), got(all.size(), -1);
      ASSERT_TRUE(world.broadcast(sent.data(), got.data(), Count{sent.size()}, DType::kInt32,
                                  Rank{in_place ? 1 : 0}));
      EXPECT_TRUE(got == sent);
    }
  });
}

using Allocate = std::function<std::shared_ptr<std::int32_t>(std::size_t count)>;

void expect_early_copies(Communicator& world, std::size_t each, const Allocate& allocate) {
  const auto rank = static_cast<std::size_t>(world.rank().value());
  std::vector<std::int32_t> all(4 * each);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int32_t> own(all.begin() + static_cast<std::ptrdiff_t>(rank * each),
                                      all.begin() + static_cast<std::ptrdiff_t>((rank + 1) * each));
  const std::vector<std::int32_t> nothing(4 * each, -1);
  for (const char* algorithm : {"direct", "ring", "bruck", "ring", "bruck"}) {
    const auto mine = allocate(each), got = allocate(4 * each);
    copy(own, mine.get());
    copy(nothing, got.get());
    ASSERT_TRUE(world.allgather(mine.get(), got.get(), Count{each}, DType::kInt32,
                                {.algorithm = algorithm}));
    EXPECT_TRUE(is_same(all, got.get())) << algorithm << ", " << each;
  }
  for (const char* algorithm : {"direct", "chain", "binomial", "knomial", "scatter_allgather",
                                "pipelined_chain", "double_binary_tree", "chain"}) {
    const auto sent = allocate(4 * each), got = allocate(4 * each);
    copy(rank == 1 ? all : nothing, sent.get());
    copy(nothing, got.get());
    const auto done = world.broadcast(sent.get(), got.get(), Count{4 * each}, DType::kInt32,
                                      Rank{1}, {.algorithm = algorithm});
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_TRUE(is_same(all, got.get())) << algorithm << ", " << each;
  }
}

// Goal: copies that begin beside sends take what the schedule says, by every algorithm that copies.
// Method: parts of one block, of several, and such that outgrow the caches, in ordinary memory and
// in what peers read in place, apart, twice by one operation, on other buffers.
TEST_P(Repeat, CopiesBeginEarly) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    for (const std::size_t each : {5, 701, 3'001, 70'001, 550'003}) {
      expect_early_copies(world, each, [](std::size_t count) {
        return std::shared_ptr<std::int32_t>(new std::int32_t[count],
                                             std::default_delete<std::int32_t[]>());
      });
      expect_early_copies(world, each, [&](std::size_t count) {
        const auto memory = *context.allocate(Bytes{count * sizeof(std::int32_t)});
        return std::shared_ptr<std::int32_t>(memory, reinterpret_cast<std::int32_t*>(memory.get()));
      });
    }
  });
}

// Goal: what outgrows the caches is summed right in memory that peers write, odd lengths included.
// Method: allreduces in place in library memory, other values each time, every element compared.
TEST_P(Repeat, LargeSumsAreWrittenByPeers) {
  Contexts contexts = make_ranks(4, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    const std::int32_t rank = world.rank().value();
    constexpr std::size_t kCount = 3'200'003;
    const auto memory = context.allocate(Bytes{kCount * sizeof(std::int32_t)});
    ASSERT_TRUE(memory);
    auto* data = reinterpret_cast<std::int32_t*>(memory->get());
    for (std::int32_t turn = 0; turn < 2; ++turn) {
      for (std::size_t i = 0; i < kCount; ++i) data[i] = static_cast<std::int32_t>(i) + rank + turn;
      ASSERT_TRUE(world.allreduce(data, data, Count{kCount}, DType::kInt32));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        wrong += data[i] == 4 * (static_cast<std::int32_t>(i) + turn) + 6 ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0u) << turn;
    }
  });
}

// Goal: equal calls that are in flight at once, or whose request is still held, do not share an
// operation. Method: rank 1 joins in the third call only once rank 0 has looked at its requests.
TEST_P(Repeat, RequestsKeepTheirOperations) {
  Contexts contexts = make_ranks(2, GetParam());
  std::atomic<int> looked{0};
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const std::vector<float> ones(100, 1.0F), twos(100, 2.0F);
    std::vector<float> a(100), b(100), c(100);
    for (int turn = 1; turn <= 20; ++turn) {
      Request first = start_sum(world, ones, a);
      Request second = start_sum(world, twos, b);
      ASSERT_TRUE(second.wait());
      ASSERT_TRUE(first.wait());
      while (world.rank() == Rank{1} && looked < turn) std::this_thread::yield();
      Request third = start_sum(world, twos, c);
      EXPECT_TRUE(*first.test());
      EXPECT_TRUE(*second.test());
      if (world.rank() == Rank{0}) looked = turn;
      ASSERT_TRUE(third.wait());
      EXPECT_EQ(a, std::vector<float>(100, 2.0F));
      EXPECT_EQ(b, std::vector<float>(100, 4.0F));
      EXPECT_EQ(c, b);
    }
  });
}

// Goal: from the second time on a small call allocates nothing at all.
TEST_P(Repeat, AllocatesNothing) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> data(16, 1.0F);
    const auto call = [&] {
      ASSERT_TRUE(world.allreduce(data.data(), data.data(), Count{16}, DType::kFloat32,
                                  Reduction::kMax, {}));
    };
    for (int i = 0; i < 8; ++i) call();
    const Counters before = counters();
    for (int i = 0; i < 100; ++i) call();
    // A driver of the progress thread may still hold an operation when the next call comes.
    EXPECT_LE(counters().allocations - before.allocations, 10u);
    if (kCounts) {
      EXPECT_GT(counters().allocations, 0u);
    }
  });
}

// Goal: every call counts once in its plan, those that failed before they began not at all.
// Method: equal calls, a null buffer among them, and an algorithm set anew, which forgets what ran.
TEST_P(Repeat, CallsAreCounted) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    std::vector<float> data(10, 1.0F), more(20, 1.0F);
    const auto call = [&](std::vector<float>& values) {
      ASSERT_TRUE(world.allreduce(values.data(), values.data(), Count{values.size()},
                                  DType::kFloat32, Reduction::kSum, {.algorithm = "ring"}));
    };
    EXPECT_EQ(context.statistics().operations, 0u);
    const auto counted = [&](std::string_view plan = "allreduce ring") {
      Statistics::Calls all;
      for (const auto& [label, calls] : context.statistics().plans) {
        if (!label.starts_with(plan)) continue;
        all.calls += calls.calls;
        all.bytes += calls.bytes;
      }
      return std::pair(all.calls, all.bytes);
    };
    for (int i = 0; i < 5; ++i) call(data);
    for (int i = 0; i < 3; ++i) call(more);
    EXPECT_EQ(counted(), std::pair(8ul, 5 * 40ul + 3 * 80));
    const auto failed = world.allreduce(nullptr, nullptr, Count{10}, DType::kFloat32,
                                        Reduction::kSum, {.algorithm = "ring"});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(counted().first, 8ul);
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, "ring"));
    EXPECT_EQ(counted().first, 8ul);
    call(data);
    call(data);
    EXPECT_EQ(counted(), std::pair(10ul, 7 * 40ul + 3 * 80));
    // What takes the place of a forgotten operation does not count its calls.
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, "rabenseifner"));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(
          world.allreduce(data.data(), data.data(), Count{10}, DType::kFloat32, Reduction::kSum));
    }
    EXPECT_EQ(counted("allreduce rabenseifner"), std::pair(3ul, 3 * 40ul));
    EXPECT_EQ(counted(), std::pair(10ul, 7 * 40ul + 3 * 80));
    EXPECT_EQ(context.statistics().operations, 13u);
  });
}

// Goal: a call that differs from the one before in an option alone is planned by its own options.
// Method: calls on the same buffer, twice each with every option that changes the algorithm, and
// all of that twice; the plans say how often each algorithm ran.
TEST_P(Repeat, OptionsOfLikeCallsDecide) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    std::vector<float> data(10, 1.0F);
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, "ring"));
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40 << 10}, "recursive_doubling"));
    const CallOptions each[] = {{.size_shift = 10}, {}, {.algorithm = "rabenseifner"}};
    for (int turn = 0; turn < 2; ++turn) {
      for (const CallOptions& options : each) {
        for (int i = 0; i < 2; ++i) {
          ASSERT_TRUE(world.allreduce(data.data(), data.data(), Count{data.size()}, DType::kFloat32,
                                      Reduction::kSum, options));
        }
      }
    }
    std::map<std::string, std::uint64_t> calls;
    for (const auto& [label, counted] : context.statistics().plans) {
      const std::size_t begin = label.find(' ') + 1;
      if (label.starts_with("allreduce ")) {
        calls[label.substr(begin, label.find(' ', begin) - begin)] += counted.calls;
      }
    }
    const std::map<std::string, std::uint64_t> expected{
        {"recursive_doubling", 4}, {"rabenseifner", 4}, {"ring", 4}};
    EXPECT_EQ(calls, expected);
  });
}

// Goal: a call that asks for one order of operands gets it, though the one before did not ask, and
// one that does not ask is not slowed down by one that did.
// Method: large numbers that cancel each other before or after a small one is added, by a ring, in
// which each chunk has another order.
TEST_P(Repeat, AFixedOrderIsKept) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const float values[] = {1e8F, 1.0F, -1e8F};
    const std::vector<float> mine(300, values[world.rank().value()]);
    for (const bool fixed : {true, false, true, false, false, true}) {
      std::vector<float> sums(300);
      ASSERT_TRUE(world.allreduce(mine.data(), sums.data(), Count{300}, DType::kFloat32,
                                  Reduction::kSum, {.algorithm = "ring", .deterministic = fixed}));
      EXPECT_EQ(std::ranges::count(sums, sums[0]) == 300, fixed);
    }
  });
}

// Goal: a call in place is no repetition of one that is not, nor the reverse, wherever the shorter
// buffer lies in the longer one. Method: both in turns; what is not written shows.
TEST_P(Repeat, InPlaceAndApartTakeTurns) {
  Contexts contexts = make_ranks(3, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank().value());
    for (const std::size_t n : {4u, 20'000u}) {
      for (const bool in_place : {true, false, true, false}) {
        std::vector<float> all(3 * n, -1.0F), mine(n, static_cast<float>(rank));
        if (in_place) copy(mine, all.data() + rank * n);
        const float* in = in_place ? all.data() + rank * n : mine.data();
        ASSERT_TRUE(world.allgather(in, all.data(), Count{n}, DType::kFloat32));
        for (std::size_t r = 0; r < 3; ++r) {
          EXPECT_TRUE(is_same(std::vector<float>(n, static_cast<float>(r)), all.data() + r * n));
        }
        std::vector<float> rows(3 * n, static_cast<float>(rank)), sums(n, -1.0F);
        float* out = in_place ? rows.data() + rank * n : sums.data();
        ASSERT_TRUE(world.reducescatter(rows.data(), out, Count{n}, DType::kFloat32));
        EXPECT_TRUE(is_same(std::vector<float>(n, 3.0F), out));
      }
    }
  });
}

// Goal: a choice made while a call is outstanding counts for the next one.
// Method: rank 1 comes late to a call that blocks rank 0, whose operation is in use meanwhile.
TEST_P(Repeat, AChoiceMadeMeanwhileCounts) {
  Contexts contexts = make_ranks(2, GetParam());
  std::atomic<bool> chosen{false};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    std::vector<float> data(10, 1.0F);
    const auto sum = [&] {
      return world.allreduce(data.data(), data.data(), Count{10}, DType::kFloat32);
    };
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, "recursive_doubling"));
    ASSERT_TRUE(sum());
    std::thread waiting;
    if (world.rank().value() == 0) {
      waiting = std::thread([&] { EXPECT_TRUE(sum()); });
      while (context.dump().find("allreduce") == std::string::npos) std::this_thread::yield();
    }
    ASSERT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{40}, "ring"));
    if (world.rank().value() == 1) {
      while (!chosen) std::this_thread::yield();
      // The choice is this rank's own; the call that waits was made by the earlier one.
      EXPECT_TRUE(world.allreduce(data.data(), data.data(), Count{10}, DType::kFloat32,
                                  Reduction::kSum, {.algorithm = "recursive_doubling"}));
    } else {
      chosen = true;
      waiting.join();
    }
    EXPECT_TRUE(sum());
  });
}

// Goal: a call like one before is checked again where its buffers are others. Method: each buffer
// is missing once, and overlaps the other one once, between calls that are right.
TEST_P(Repeat, WrongBuffersAreFoundAgain) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context&, Communicator& world) {
    std::vector<float> in(8, 1), out(8);
    const auto sum = [&](const float* from, float* to) {
      return world.allreduce(from, to, Count{4}, DType::kFloat32);
    };
    const std::tuple<const float*, float*, std::string> wrong[] = {
        {nullptr, out.data(), "'in' is null"},
        {in.data(), nullptr, "'out' is null"},
        {out.data() + 1, out.data(), "'out' is overlapping"}};
    for (const auto& [from, to, words] : wrong) {
      ASSERT_TRUE(sum(in.data(), out.data()));
      const auto refused = sum(from, to);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
      EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
    }
    ASSERT_TRUE(sum(in.data(), out.data()));
    EXPECT_EQ(out[3], 2.0F);
  });
}

// Goal: small calls, which look at no clock at first, count the time for which they wait. Method:
// rank 1 comes 5 ms late to every third of 30 calls.
TEST_P(Repeat, SmallCallsCountTheirWaits) {
  Contexts contexts = make_ranks(2, GetParam());
  run_ranks(contexts, [](Context& context, Communicator& world) {
    std::vector<float> data(4, 1.0F);
    const bool comes_late = world.rank() == Rank{1};
    for (int turn = 0; turn < 30; ++turn) {
      if (comes_late && turn % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ASSERT_TRUE(world.allreduce(data.data(), data.data(), Count{4}, DType::kFloat32));
    }
    if (comes_late) return;
    EXPECT_GE(context.statistics().wait_seconds, 0.01);
    EXPECT_GE(context.statistics().active_seconds, 0.01);
  });
}

// Goal: threads that make equal calls at once, while another one has the operations forgotten, get
// their own results. Method: two threads a rank, whose sums are all alike, so that it does not
// matter which of one rank meets which of the other.
TEST_P(Repeat, ThreadsDoNotShareOperations) {
  Contexts contexts = make_ranks(2, GetParam());
  std::atomic<int> running{4};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    const auto begin = std::chrono::steady_clock::now();
    const auto work = [&] {
      std::vector<float> values(50), all(50);
      for (int i = 0; i < 400; ++i) {
        values.assign(50, 3.0F);
        ASSERT_TRUE(world.allreduce(values.data(), all.data(), Count{50}, DType::kFloat32));
        ASSERT_EQ(all, std::vector<float>(50, 6.0F));
        Request request = start_sum(world, values, all);
        ASSERT_TRUE(request.wait());
      }
      --running;
    };
    std::thread one(work), two(work);
    while (running > 0) {
      EXPECT_TRUE(world.set_algorithm(Collective::kAllreduce, Bytes{1 << 20}, "ring"));
      std::this_thread::yield();
    }
    one.join();
    two.join();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LE(context.statistics().wait_seconds, 2 * seconds + 0.1);  // of two threads
    EXPECT_LE(context.statistics().active_seconds, seconds + 0.1);
  });
}

// Goal: what a thread starts while another one's short call ends is run, although nobody waits for
// it. Method: one call and one start at about the same moment, then both threads only look; 10,000
// times, or as often as 3 s allow, but 1000 times.
TEST(Submission, IsSeenByADriverThatStops) {
  AsymmetricFence::enable();
  Contexts contexts = make_ranks(1, "inproc");
  run_ranks(contexts, [](Context&, Communicator& world) {
    constexpr int kRoundsMin = 1000, kRounds = 10'000;
    const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    std::atomic<int> arrived{0};
    std::atomic<bool> last{false};  // set before the second meeting of a round
    const auto meet = [&](int round) {
      arrived.fetch_add(1);
      for (int look = 1; arrived.load() < 2 * round; ++look) {
        if (look % 1000 == 0) std::this_thread::yield();
      }
    };
    std::thread caller([&] {
      for (int round = 1; !last; ++round) {
        meet(2 * round - 1);
        for (std::atomic<int> wait{round % 300}; wait > 0;) --wait;
        EXPECT_TRUE(world.barrier());
        meet(2 * round);
      }
    });
    bool all_ran = true;
    for (int round = 1; !last; ++round) {
      meet(2 * round - 1);
      auto request = world.start(Arguments{});
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
      while (!*request->test() && std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
      }
      all_ran = *request->test();
      const bool late = round >= kRoundsMin && std::chrono::steady_clock::now() > enough;
      last = !all_ran || late || round == kRounds;
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // nobody drives in between
      meet(2 * round);
    }
    caller.join();
    EXPECT_TRUE(all_ran);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Repeat, ::testing::Values("inproc", "kernel", "shm", "tcp", "device"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace farandole::testing
