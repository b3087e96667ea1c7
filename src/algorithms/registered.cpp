// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "algorithms/registered.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "schedule/text.hpp"

namespace farandole {
namespace {

/// Schedules of one name for one collective, or a delegate; `info` refers to the name beside it.
struct RegisteredRow {
  RegisteredRow(Collective collective, std::string_view given)
      : name(given),
        info{.collective = collective,
             .name = name,
             .summary = "A schedule from a file.",
             .cost = "not priced",
             .source = "file",
             .needs = "the schedule's ranks",
             .options = "",
             .ranks_max = kRanksMax,
             .build = nullptr} {}
  RegisteredRow(Collective collective, std::shared_ptr<const Delegate> given)
      : name(given->name()),
        info{.collective = collective,
             .name = name,
             .summary = given->summary(),
             .cost = "a + n b",
             .source = "delegate",
             .needs = "ranks that it reaches",
             .options = "",
             .ranks_max = kRanksMax,
             .build = nullptr,
             .delegate = given.get()},
        delegate(std::move(given)) {}
  RegisteredRow(const RegisteredRow&) = delete;
  RegisteredRow& operator=(const RegisteredRow&) = delete;
  ~RegisteredRow() = default;

  const std::string name;
  const AlgorithmInfo info;
  std::vector<Schedule> schedules;  // at most one per number of ranks and root
  const std::shared_ptr<const Delegate> delegate;
};

struct RegisteredTable {
  std::mutex mutex;
  std::vector<std::unique_ptr<RegisteredRow>> rows;

  RegisteredRow* find(Collective collective, std::string_view name) {
    const auto found = std::ranges::find_if(rows, [&](const auto& row) {
      return row->info.collective == collective && row->name == name;
    });
    return found == rows.end() ? nullptr : found->get();
  }
};

RegisteredTable& registered_table() {
  static RegisteredTable& table = *new RegisteredTable;  // rows may be used until the process ends
  return table;
}

std::string ranks_and_root(const Schedule& schedule) {
  std::string text = std::to_string(schedule.rank_count) + " ranks";
  if (has_root(schedule.collective)) text += " and root " + std::to_string(root_rank(schedule));
  return text;
}

bool is_of_the_library(Collective collective, std::string_view name) {
  return std::ranges::any_of(algorithms(), [&](const AlgorithmInfo* info) {
    return info->collective == collective && info->name == name;
  });
}

Error wrong_schedule(const std::string& path, const std::string& why) {
  return {ErrorKind::kInvalidArgument, "schedule file '" + path + "': " + why};
}

Result<std::string> read_schedule_file(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    return wrong_schedule(path, "no such file");
  }
  if (failure) return wrong_schedule(path, failure.message());
  if (!std::filesystem::is_regular_file(status)) {
    return wrong_schedule(path, "allowed is a regular file");
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
  if (failure) return wrong_schedule(path, failure.message());
  if (bytes > kScheduleBytesMax) {
    return wrong_schedule(path, "it has " + std::to_string(bytes) + " bytes, allowed are " +
                                    std::to_string(kScheduleBytesMax));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return wrong_schedule(path, std::strerror(errno));
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::int64_t root_rank(const Schedule& schedule) {
  if (!has_root(schedule.collective)) return 0;
  const auto position = static_cast<std::size_t>(schedule.root);
  return schedule.order.empty() ? schedule.root : schedule.order[position];
}

Result<VerifiedSchedule> load_schedule(const std::string& path) {
  const auto text = read_schedule_file(path);
  if (!text) return text.error();
  auto schedule = parse_schedule(*text);
  if (!schedule) return wrong_schedule(path, schedule.error().message);
  auto verified = verify(*std::move(schedule));
  if (!verified && verified.error().kind == ErrorKind::kInternal) {
    return wrong_schedule(path, "the proof fails: " + verified.error().message);
  }
  return verified;
}

Result<const AlgorithmInfo*> register_schedule(const VerifiedSchedule& verified) {
  const Schedule& schedule = verified.schedule();
  const auto refused = [&](const std::string& whose) {
    return Error{ErrorKind::kInvalidArgument,
                 "schedule \"" + schedule.algorithm + "\" for " +
                     std::string(name(schedule.collective)) + ": that is the name of " + whose +
                     "; allowed is one of its own in the line \"algorithm\"."};
  };
  if (is_of_the_library(schedule.collective, schedule.algorithm)) {
    return refused("an algorithm of the library");
  }
  RegisteredTable& table = registered_table();
  const std::lock_guard lock(table.mutex);
  RegisteredRow* row = table.find(schedule.collective, schedule.algorithm);
  if (row == nullptr) {
    table.rows.push_back(std::make_unique<RegisteredRow>(schedule.collective, schedule.algorithm));
    row = table.rows.back().get();
  }
  if (row->delegate) return refused("a delegate");
  for (const Schedule& other : row->schedules) {
    if (other.rank_count != schedule.rank_count || root_rank(other) != root_rank(schedule)) {
      continue;
    }
    if (to_text(other) == to_text(schedule)) return &row->info;
    return refused("another schedule for " + ranks_and_root(schedule));
  }
  row->schedules.push_back(schedule);
  return &row->info;
}

Result<void> register_delegate(std::shared_ptr<const Delegate> delegate) {
  RegisteredTable& table = registered_table();
  const std::lock_guard lock(table.mutex);
  for (const Collective collective : delegate->collectives()) {
    if (!is_of_the_library(collective, delegate->name()) &&
        table.find(collective, delegate->name()) == nullptr) {
      continue;
    }
    return Error{ErrorKind::kInvalidArgument, "delegate \"" + std::string(delegate->name()) +
                                                  "\": there is an algorithm of that "
                                                  "name for " +
                                                  std::string(name(collective)) + "."};
  }
  for (const Collective collective : delegate->collectives()) {
    table.rows.push_back(std::make_unique<RegisteredRow>(collective, delegate));
  }
  return {};
}

std::vector<const AlgorithmInfo*> registered_algorithms() {
  RegisteredTable& table = registered_table();
  const std::lock_guard lock(table.mutex);
  std::vector<const AlgorithmInfo*> rows;
  for (const auto& row : table.rows) rows.push_back(&row->info);
  return rows;
}

const AlgorithmInfo* find_registered(Collective collective, std::string_view name) {
  RegisteredTable& table = registered_table();
  const std::lock_guard lock(table.mutex);
  const RegisteredRow* row = table.find(collective, name);
  return row == nullptr ? nullptr : &row->info;
}

Result<Schedule> written_schedule(const AlgorithmInfo& row, std::int64_t rank_count,
                                  std::int64_t root) {
  RegisteredTable& table = registered_table();
  const std::lock_guard lock(table.mutex);
  std::string known;
  for (const Schedule& schedule : table.find(row.collective, row.name)->schedules) {
    if (schedule.rank_count == rank_count &&
        (!has_root(row.collective) || root_rank(schedule) == root)) {
      return schedule;
    }
    known += (known.empty() ? "" : "; ") + ranks_and_root(schedule);
  }
  std::string asked = std::to_string(rank_count) + " ranks";
  if (has_root(row.collective)) asked += " and root " + std::to_string(root);
  return Error{ErrorKind::kInvalidArgument, "schedule \"" + std::string(row.name) + "\" for " +
                                                std::string(name(row.collective)) +
                                                ": asked for is " + asked + ", allowed is " +
                                                known};
}

}  // namespace farandole
