# Fetches the agent from the deployment and runs it.
trap {
	Write-Host "The agent could not be started: $_. Waiting 24 hours before giving up, so that this log can be read."
	Start-Sleep -Seconds 86400
	exit 1
}
$ErrorActionPreference = "Stop"
$ProgressPreference = "SilentlyContinue"
[Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12

# Editors recognise the remote side by this file name.
$binary = "$env:TEMP\sshd.exe"
$url = "${ACCESS_URL}bin/coder-windows-${ARCH}.exe"
while ($true) {
	try {
		Invoke-WebRequest -Uri $url -OutFile $binary -UseBasicParsing
		break
	} catch {
		Write-Host "The agent could not be fetched from ${url}: $_. Trying again in 30 seconds."
		Start-Sleep -Seconds 30
	}
}

$env:CODER_AGENT_AUTH = "${AUTH_TYPE}"
$env:CODER_AGENT_URL = "${ACCESS_URL}"

$version = (& $binary --version | Select-Object -First 1)
if ($version -notlike "*Coder*") {
	throw "what was fetched from $url is not the agent"
}

if (Get-Service -Name cexecsvc -ErrorAction SilentlyContinue) {
	# A container lives as long as its first process.
	& $binary agent
} else {
	Start-Process -FilePath $binary -ArgumentList "agent" -PassThru | Out-Null
}
