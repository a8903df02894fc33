#include "download.hpp"

namespace tutti {

DownloadResult download(const Download&) {
  return {DownloadEnd::refused, "this build has no libcurl (build it where curl/curl.h is, as tools/setup provides)"};
}

}  // namespace tutti
