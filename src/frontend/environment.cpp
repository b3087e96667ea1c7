// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "frontend/environment.hpp"

#include <algorithm>

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

}  // namespace

Result<void> read_settings(Environment& environment) {
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
  for (const AlgorithmInfo* info : algorithms()) {
    if (info->name == algorithm->substr(0, algorithm->find(':')))
      environment.algorithm = *algorithm;
    if (known.find(info->name) == std::string::npos) known += ", " + std::string(info->name);
  }
  if (!environment.algorithm.empty()) return {};
  return Error{ErrorKind::kInvalidArgument,
               "FARANDOLE_ALGORITHM is '" + *algorithm + "', allowed is auto" + known + "."};
}

}  // namespace farandole
