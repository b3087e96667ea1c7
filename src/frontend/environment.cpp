// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/environment.hpp"

#include <algorithm>

#include "algorithms/registered.hpp"
#include "algorithms/registry.hpp"
#include "base/settings.hpp"
#include "transport/registry.hpp"

namespace farandole {
namespace {

Result<std::chrono::milliseconds> seconds_setting(std::string_view name) {
  auto seconds = number_setting(name);
  if (!seconds) return seconds.error();
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

Error about_schedules(const Error& error) {
  return {error.kind, "FARANDOLE_SCHEDULE: " + error.message};
}

Result<void> read_schedules(Environment& environment) {
  const auto setting = text_setting("FARANDOLE_SCHEDULE");
  if (!setting) return setting.error();
  for (std::string_view rest = *setting; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    auto loaded = load_schedule(std::string(rest.substr(0, end)));
    if (!loaded) return about_schedules(loaded.error());
    if (auto added = register_schedule(*loaded); !added) return about_schedules(added.error());
    environment.schedules.push_back(*std::move(loaded));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

}  // namespace

Result<void> read_settings(Environment& environment) {
  if (auto read = read_schedules(environment); !read) return read;
  auto reserve = number_setting("FARANDOLE_MEMORY");
  if (!reserve) return reserve.error();
  environment.memory_reserve = Bytes{static_cast<std::size_t>(*reserve)};
  auto check = flag_setting("FARANDOLE_CHECK");
  if (!check) return check.error();
  environment.check = *check;
  auto timeout = seconds_setting("FARANDOLE_OPERATION_TIMEOUT");
  if (!timeout) return timeout.error();
  environment.operation_timeout = *timeout;
  auto transport = text_setting("FARANDOLE_TRANSPORT");
  if (!transport) return transport.error();
  const auto names = transport_names();
  if (*transport != "auto" && std::ranges::find(names, *transport) == names.end()) {
    return Error{ErrorKind::kInvalidArgument, "FARANDOLE_TRANSPORT is '" + *transport +
                                                  "', allowed is " + allowed_transports() + "."};
  }
  environment.transport = *transport;
  auto algorithm = text_setting("FARANDOLE_ALGORITHM");
  if (!algorithm) return algorithm.error();
  if (*algorithm == "auto") return {};
  std::string known;
  for (const AlgorithmInfo* info : all_algorithms()) {
    if (info->name == algorithm->substr(0, algorithm->find(':')))
      environment.algorithm = *algorithm;
    if (known.find(info->name) == std::string::npos) known += ", " + std::string(info->name);
  }
  if (!environment.algorithm.empty()) return {};
  return Error{ErrorKind::kInvalidArgument,
               "FARANDOLE_ALGORITHM is '" + *algorithm + "', allowed is auto" + known + "."};
}

}  // namespace farandole
