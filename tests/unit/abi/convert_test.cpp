// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "abi/convert.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "unit/abi/ranks.hpp"

namespace farandole::testing {
namespace {

/// Whatever one call may be given. It is valid as made, on one rank.
struct Given {
  explicit Given(farandole_communicator* world) : communicator(world) {}

  std::array<std::int64_t, 64> in{}, out{};
  std::array<std::size_t, 1> counts{8};
  farandole_communicator* communicator;
  farandole_arguments arguments =
      arguments_of(FARANDOLE_ALLREDUCE, in.data(), out.data(), 8, FARANDOLE_INT64);
  farandole_options options = no_options();
  std::array<farandole_message, 2> messages = {
      message_of(FARANDOLE_SEND, in.data(), 8, FARANDOLE_INT64, 0),
      message_of(FARANDOLE_RECEIVE, out.data(), 8, FARANDOLE_INT64, 0)};
  const farandole_arguments* arguments_at = &arguments;
  const farandole_options* options_at = &options;
  const farandole_message* messages_at = messages.data();

  farandole_status run_collective(bool starts) {
    farandole_request* request = nullptr;
    if (!starts) return farandole_run(communicator, arguments_at, options_at);
    const auto started = farandole_start(communicator, arguments_at, options_at, &request);
    return finish(started, request);
  }
  farandole_status run_messages(bool starts) {
    farandole_request* request = nullptr;
    if (!starts) return farandole_run_messages(communicator, messages_at, 2, options_at);
    const auto started =
        farandole_start_messages(communicator, messages_at, 2, options_at, &request);
    return finish(started, request);
  }
  static farandole_status finish(farandole_status started, farandole_request* request) {
    EXPECT_EQ(request == nullptr, started != FARANDOLE_OK);
    const farandole_status ended = request != nullptr ? farandole_wait(request) : started;
    expect_ok(farandole_request_release(request));
    return ended;
  }
};

/// A way to spoil a call, and what the error must say then.
struct Damage {
  std::string words;
  std::function<void(Given&, std::int32_t)> apply;  // with a number that no enum and no rank has
  farandole_status status = FARANDOLE_INVALID_ARGUMENT;
};

farandole_request& some_request(Given& given) {
  return reinterpret_cast<farandole_request&>(given.in);
}

std::vector<Damage> damages_of_both() {
  return {
      {"'communicator' is null", [](Given& g, std::int32_t) { g.communicator = nullptr; }},
      {"'communicator' is a pointer to something else",
       [](Given& g, std::int32_t) {
         g.communicator = reinterpret_cast<farandole_communicator*>(&some_request(g));
       }},
      {"'options.struct_size' is 0", [](Given& g, std::int32_t) { g.options.struct_size = 0; }},
      {"'options.struct_size'",
       [](Given& g, std::int32_t odd) {
         g.options.struct_size = odd < 0 ? sizeof(g.options) - 8 : static_cast<std::size_t>(odd);
       }},
      {"'options.caller_waits'", [](Given& g, std::int32_t odd) { g.options.caller_waits = odd; }},
      {"'options.deterministic'",
       [](Given& g, std::int32_t odd) { g.options.deterministic = odd; }},
      {"'options.size_shift'", [](Given& g, std::int32_t odd) { g.options.size_shift = odd; }},
      {"'options.reserved'", [](Given& g, std::int32_t odd) { g.options.reserved = odd; }},
      {"'options.stream' is given", [](Given& g, std::int32_t) { g.options.stream = &g; },
       FARANDOLE_UNSUPPORTED},
  };
}

std::vector<Damage> damages_of_collectives() {
  std::vector<Damage> damages = {
      {"'arguments' is null", [](Given& g, std::int32_t) { g.arguments_at = nullptr; }},
      {"'arguments.struct_size'",
       [](Given& g, std::int32_t odd) {
         g.arguments.struct_size = odd < 0 ? std::size_t{88} : static_cast<std::size_t>(odd);
       }},
      {"'arguments.collective'", [](Given& g, std::int32_t odd) { g.arguments.collective = odd; }},
      {"'arguments.dtype'", [](Given& g, std::int32_t odd) { g.arguments.dtype = odd; }},
      {"'arguments.reduction'", [](Given& g, std::int32_t odd) { g.arguments.reduction = odd; }},
      {"'arguments.by_rank'", [](Given& g, std::int32_t odd) { g.arguments.by_rank = odd; }},
      {"'arguments.reserved'", [](Given& g, std::int32_t odd) { g.arguments.reserved = odd; }},
      {"'arguments.in_counts' is given",
       [](Given& g, std::int32_t) { g.arguments.in_counts = g.counts.data(); }},
      {"'arguments.out_counts' is null",
       [](Given& g, std::int32_t) {
         g.arguments.by_rank = 1;
         g.arguments.out_counts_length = 1;
       }},
      {"'root'", [](Given& g, std::int32_t odd) { g.arguments.root = odd; }},
      {"'in' is null", [](Given& g, std::int32_t) { g.arguments.in = nullptr; }},
      {"'out' is null", [](Given& g, std::int32_t) { g.arguments.out = nullptr; }},
      {"'out' is overlapping", [](Given& g, std::int32_t) { g.arguments.out = &g.in[1]; }},
      {"'count'",
       [](Given& g, std::int32_t) {
         g.arguments.count = std::numeric_limits<std::size_t>::max() / 2;
       }},
      {"'by_rank' is true", [](Given& g, std::int32_t) { g.arguments.by_rank = 1; }},
      {"no-such-algorithm",
       [](Given& g, std::int32_t) { g.options.algorithm = "no-such-algorithm"; }},
  };
  for (Damage& damage : damages_of_both()) damages.push_back(std::move(damage));
  return damages;
}

std::vector<Damage> damages_of_messages() {
  std::vector<Damage> damages = {
      {"'messages' is null", [](Given& g, std::int32_t) { g.messages_at = nullptr; }},
      {"'messages[0].struct_size'", [](Given& g, std::int32_t) { g.messages[0].struct_size = 8; }},
      {"'messages[0].struct_size'", [](Given& g, std::int32_t) { g.messages[0].struct_size = 41; }},
      {"'messages[1].struct_size'", [](Given& g, std::int32_t) { g.messages[1].struct_size = 48; }},
      {"'messages[0].kind'", [](Given& g, std::int32_t odd) { g.messages[0].kind = odd; }},
      {"'messages[1].dtype'", [](Given& g, std::int32_t odd) { g.messages[1].dtype = odd; }},
      {"'messages[1].reserved'", [](Given& g, std::int32_t odd) { g.messages[1].reserved = odd; }},
      {"'dest'", [](Given& g, std::int32_t odd) { g.messages[0].peer = odd; }},
      {"'source'", [](Given& g, std::int32_t odd) { g.messages[1].peer = odd; }},
      {"'data' is null", [](Given& g, std::int32_t) { g.messages[1].data = nullptr; }},
      {"'count'",
       [](Given& g, std::int32_t) {
         g.messages[1].count = std::numeric_limits<std::size_t>::max();
       }},
      {"sends itself int64[8] and expects int64[7]",
       [](Given& g, std::int32_t) { g.messages[1].count = 7; }, FARANDOLE_MISMATCH},
  };
  for (Damage& damage : damages_of_both()) damages.push_back(std::move(damage));
  return damages;
}

std::uint32_t seed() {
  const char* const given = std::getenv("FARANDOLE_TEST_SEED");
  return given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : 20;
}

/// Numbers that no enum, flag, size shift, or struct size of one rank's call has.
std::int32_t odd_number(std::mt19937& random) {
  constexpr std::array kLimits = {std::numeric_limits<std::int32_t>::min(), -1000, -17, 4097, 70001,
                                  std::numeric_limits<std::int32_t>::max()};
  const auto pick = random() % (2 * kLimits.size());
  if (pick < kLimits.size()) return kLimits[pick];
  const auto any = static_cast<std::int32_t>(random());
  return any > -20 && any < 5000 ? any + 5000 : any;
}

// Goal: every mistake in a call is an error that names it, and after it the next call works.
// Method: a valid call, spoiled in one way after the other, on one rank, which waits for nobody.
TEST(AbiConvert, EveryMistakeIsNamed) {
  on_ranks(1, [](farandole_communicator* world) {
    std::mt19937 random(seed());
    for (const bool starts : {false, true}) {
      for (const Damage& damage : damages_of_collectives()) {
        Given given(world);
        damage.apply(given, odd_number(random));
        expect_failure(given.run_collective(starts), damage.status, damage.words);
      }
      for (const Damage& damage : damages_of_messages()) {
        Given given(world);
        damage.apply(given, odd_number(random));
        expect_failure(given.run_messages(starts), damage.status, damage.words);
      }
      expect_ok(Given(world).run_collective(starts));
      expect_ok(Given(world).run_messages(starts));
    }
  });
}

// Goal: whatever comes together in one call, it ends with an error that names one of the mistakes.
// Method: a few thousand random calls with several mistakes each; FARANDOLE_TEST_SEED repeats one.
TEST(AbiConvert, RandomMistakesNeverPass) {
  const bool full = std::getenv("FARANDOLE_TEST_FULL") != nullptr;
  SCOPED_TRACE("FARANDOLE_TEST_SEED=" + std::to_string(seed()));
  on_ranks(1, [full](farandole_communicator* world) {
    std::mt19937 random(seed());
    const auto collectives = damages_of_collectives(), messages = damages_of_messages();
    for (int i = 0; i < (full ? 300'000 : 4000) && !::testing::Test::HasFailure(); ++i) {
      const bool collective = random() % 2 == 0, starts = random() % 2 == 0;
      const std::vector<Damage>& damages = collective ? collectives : messages;
      Given given(world);
      std::vector<std::string> words;
      for (std::size_t many = 1 + random() % 4; many > 0; --many) {
        const Damage& damage = damages[random() % damages.size()];
        damage.apply(given, odd_number(random));
        words.push_back(damage.words.substr(0, damage.words.find(' ')));
      }
      const farandole_status status =
          collective ? given.run_collective(starts) : given.run_messages(starts);
      ASSERT_NE(status, FARANDOLE_OK) << "call " << i;
      const std::string message = last_message();
      EXPECT_TRUE(std::ranges::any_of(
          words, [&](const auto& word) { return message.find(word) != std::string::npos; }))
          << "call " << i << ": " << message;
    }
  });
}

// Goal: the other functions check what they are given as well.
TEST(AbiConvert, OtherFunctionsCheckTheirArguments) {
  Contexts contexts = make_ranks(1, "inproc");
  farandole_context context{.value = std::move(contexts[0])};
  contexts.clear();
  farandole_communicator* world = nullptr;
  expect_ok(farandole_world(&context, &world));
  farandole_communicator* made = world;
  farandole_memory* memory = nullptr;
  void* data = nullptr;
  std::int32_t number = 0;
  const std::int32_t twice[] = {0, 0}, outsider[] = {1};
  farandole_ranks ranks{};
  auto* const other_kind = reinterpret_cast<farandole_request*>(world);
  const auto refused = [](farandole_status status, const char* words) {
    expect_failure(status, FARANDOLE_INVALID_ARGUMENT, words);
  };
  refused(farandole_init(nullptr), "farandole_init: argument 'context' is null");
  refused(farandole_get_ranks(nullptr, &ranks), "'context' is null");
  refused(farandole_get_ranks(&context, nullptr), "'ranks' is null");
  refused(farandole_get_ranks(&context, &ranks), "'ranks.struct_size' is 0");
  refused(farandole_world(&context, nullptr), "'world' is null");
  refused(farandole_world(nullptr, &made), "'context' is null");
  EXPECT_EQ(made, nullptr) << "a function that fails leaves no handle";
  refused(farandole_allocate(&context, 8, nullptr, &data), "'memory' is null");
  refused(farandole_allocate(&context, 8, &memory, nullptr), "'data' is null");
  refused(farandole_allocate(nullptr, 8, &memory, &data), "'context' is null");
  EXPECT_NE(farandole_allocate(&context, ~std::size_t{0} / 2, &memory, &data), FARANDOLE_OK);
  refused(farandole_split(nullptr, nullptr, 0, &made), "'parent' is null");
  refused(farandole_split(world, nullptr, 0, nullptr), "'made' is null");
  refused(farandole_group(world, nullptr, 1, &made), "'ranks' is null");
  refused(farandole_group(world, twice, 2, &made), "'rank_count' is 2");
  refused(farandole_group(world, outsider, 1, &made), "'ranks' is a list with 1");
  refused(farandole_node(nullptr, &made), "farandole_node: argument 'parent' is null");
  refused(farandole_across(nullptr, &made), "farandole_across: argument 'parent' is null");
  refused(farandole_communicator_rank(nullptr, &number, &number), "'communicator' is null");
  refused(farandole_world_ranks(world, nullptr, 1), "'world_ranks' is null");
  refused(farandole_world_ranks(world, &number, 2), "'length' is 2, allowed is the size");
  refused(farandole_wait(nullptr), "'request' is null");
  refused(farandole_wait(other_kind), "'request' is a pointer to something else");
  refused(farandole_wait_for(nullptr, 1, &number), "'request' is null");
  refused(farandole_test(nullptr, &number), "'request' is null");
  refused(farandole_test(other_kind, nullptr), "'done' is null");
  refused(farandole_abort(nullptr, nullptr), "'request' is null");
  refused(farandole_request_release(other_kind), "allowed is a request");
  const farandole_arguments barrier = arguments_of(FARANDOLE_BARRIER, nullptr, nullptr, 0, 0);
  refused(farandole_start(world, &barrier, nullptr, nullptr), "'request' is null");
  farandole_request* request = nullptr;
  expect_ok(farandole_start(world, &barrier, nullptr, &request));
  refused(farandole_wait_for(request, -1, &number), "'timeout_ms' is -1");
  refused(farandole_wait_for(request, 1, nullptr), "'done' is null");
  refused(farandole_communicator_release(reinterpret_cast<farandole_communicator*>(request)),
          "allowed is a communicator");
  expect_ok(farandole_request_release(request));
  expect_ok(farandole_communicator_release(world));
}

}  // namespace
}  // namespace farandole::testing
